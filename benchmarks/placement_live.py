"""Real routers in front of mock engines that keep a real prefix cache and serve at modelled speed.

    python -m benchmarks.placement_live [--engines 6] [--rate 10] [--seconds 25] [--seeds 4]

The engines run in this process, speak SGLang's HTTP dialect and take the time of a modelled 8B node; their caches hold
little, so that where a request goes matters. Conversations with shared system prompts are sent through each router in
turn: smg and vLLM's router as they come from PyPI (`--smg`, `--vllm-router`: their commands; named as missing where
there are none), with cache_aware and round_robin; then our router, a process of its own, asked over a socket as a
gateway asks it. Every seed makes other conversations, which all routers meet, in another order of routers. Shown are
means with their 95 % intervals, what ours has more or less than each rival on the same conversations, and the bound no
placement can exceed. Compare hit rates and imbalance; times are not alike: with the rivals a request passes their proxy
on its way, while ours only says where to go and the gateway that would relay it is left out. Last line: JSON {"bound",
"routers": {router: {figure: [mean, interval]}}, "ours_minus": {...}}.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import random
import shutil
import signal
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence

import aiohttp
import msgspec
from aiohttp import web

from benchmarks import engine_process
from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.lease import Lease, LeaseEnd, LeaseRequest
from contracts.prefix import BLOCK_BYTES, block_hashes, chain_bytes, root
from contracts.usage import Finish, Usage
from engines.drivers.error_bodies import usage_of
from engines.performance.catalog import node
from engines.performance.engine import Ended, EngineLimits, FirstToken, ModelledEngine
from engines.performance.job import Job
from engines.performance.roofline import Roofline
from router.client import RouterClient
from router.client_config import RouterClientConfig
from router.config import RouterConfig
from tests.deployment import free_port
from tools.simulator.arrival import Arrival
from tools.simulator.bound import clairvoyant_hit_rate
from tools.simulator.course import percentile
from tools.simulator.sessions import SessionsConfig, sessions
from tools.simulator.sweep import student

MODEL, TOKEN = "modelled", "benchmark"
OURS = "ours"
CHARACTERS = 4
"""Characters per token, as everywhere in the project."""
BLOCK_TOKENS = BLOCK_BYTES // CHARACTERS
SHAPE = SessionsConfig(
    tenants=8, system_tokens=(1_024, 3_072), turns=(3, 6), user_tokens=150, answer_tokens=60, longest_answer=200,
    pause_s=3.0, block_tokens=BLOCK_TOKENS,
)  # fmt: skip
START = """
import sys, msgspec
from engines.http.keys import EngineKeys
from router.config import RouterConfig
from router.service import main
from router.tokens import RouterTokens
config, token = msgspec.json.decode(sys.argv[1], type=RouterConfig), sys.argv[2]
main(config, RouterTokens(token, f"{token}-reader"), EngineKeys(lambda: token, {}))
"""


class MockEngine:
    """One modelled engine behind HTTP, on the wall clock."""

    def __init__(self, capacity_tokens: int, slower: float = 1.0, name: str = "8b-fp8-1xh100") -> None:
        """name: the node to model. capacity_tokens: the size of the cache; 0 for as much as the node's memory holds."""
        limits = EngineLimits(block_tokens=BLOCK_TOKENS, capacity_tokens=capacity_tokens)
        self.engine = ModelledEngine(Roofline(node(name), 1 / slower), limits)
        self.news: dict[str, asyncio.Queue[str]] = {}
        self.prompt_tokens = self.cached_tokens = self.requests = 0
        self.url = ""
        self._timer: asyncio.TimerHandle | None = None
        self._numbered = 0

    def reset(self) -> None:
        """Clear the cache and the counts; called between two routers."""
        self.engine.cache.clear()
        self.prompt_tokens = self.cached_tokens = self.requests = 0

    def _follow(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.engine.step_ends_at is not None:
            self._timer = asyncio.get_running_loop().call_at(self.engine.step_ends_at, self._step)

    def _step(self) -> None:
        at = self.engine.step_ends_at
        if at is not None:
            for each in self.engine.finish_step(at):
                if isinstance(each, FirstToken):
                    self.news[each.job.id].put_nowait("first")
                elif isinstance(each, Ended):
                    self.news[each.job.id].put_nowait("ended")
        self._follow()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat completion; the prompt's text is its cache key."""
        body = await request.json()
        text = "\n".join(str(message["content"]) for message in body["messages"]).encode()
        prompt_tokens = max(len(text) // CHARACTERS, 1)
        blocks = block_hashes(chain_bytes(b"", text).hashes)
        self._numbered += 1
        job = Job(str(self._numbered), prompt_tokens, max(int(body["max_tokens"]), 2), blocks)
        self.news[job.id] = asyncio.Queue()
        self.engine.submit(job, asyncio.get_running_loop().time())
        self._follow()
        self.requests += 1
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await self.news[job.id].get()
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += job.cached_tokens
        await response.write(event(job, {"role": "assistant", "content": "t"}, None))
        await self.news[job.id].get()
        del self.news[job.id]
        await response.write(event(job, {"content": " t"}, "length"))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def other(self, request: web.Request) -> web.Response:
        """Answer requests for health, models and load."""
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        if request.path == "/v1/loads":
            engine = self.engine
            rank = {
                "dp_rank": 0, "num_running_reqs": engine.running, "num_waiting_reqs": len(engine.waiting),
                "num_used_tokens": engine.used_tokens, "max_total_num_tokens": engine.capacity_tokens,
            }  # fmt: skip
            return web.json_response({"loads": [rank]})
        return web.json_response({"model_path": MODEL, "served_model_name": MODEL, "is_generation": True})


def event(job: Job, delta: dict[str, str], finish: str | None) -> bytes:
    usage = {
        "prompt_tokens": job.prompt_tokens, "completion_tokens": job.output_tokens,
        "total_tokens": job.prompt_tokens + job.output_tokens,
        "prompt_tokens_details": {"cached_tokens": job.cached_tokens},
    }  # fmt: skip
    chunk = {
        "id": job.id, "object": "chat.completion.chunk", "created": 1, "model": MODEL, "usage": usage,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }  # fmt: skip
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def text_of(arrival: Arrival) -> str:
    """Text that shares leading characters exactly where the arrival shares leading blocks."""
    size = BLOCK_TOKENS * CHARACTERS
    known = "".join((block.hex() * (size // 32 + 1))[:size] for block in arrival.blocks)
    rest = arrival.prompt_tokens * CHARACTERS - len(known)
    return known + (arrival.session_id + " ") * (max(rest, 0) // (len(arrival.session_id) + 1))


async def serve(engine: MockEngine) -> web.AppRunner:
    app = web.Application(client_max_size=1 << 26)
    for path in ("/v1/chat/completions", "/v1/completions"):
        app.router.add_post(path, engine.answer)
    app.router.add_route("*", "/{path:.*}", engine.other)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner


class ThroughProxy:
    """Sends requests to a router that relays them to an engine."""

    def __init__(self, command: Sequence[str], session: aiohttp.ClientSession) -> None:
        self.command, self.session = command, session

    async def start(self, engines: Sequence[MockEngine]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        arguments = [
            *self.command, "--worker-urls", *(engine.url for engine in engines), "--host", "127.0.0.1", "--port",
            str(port), "--prometheus-port", str(free_port()), "--log-level", "error",
        ]  # fmt: skip
        quiet = asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(*arguments, stdout=quiet, stderr=quiet)
        for _ in range(600):
            try:
                async with self.session.get(self.url + "/v1/models") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
        raise TimeoutError(f"{self.command[0]} did not become ready")

    async def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), 5)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def ask(self, arrival: Arrival, text: str) -> float:
        return (await stream(self.session, self.url, arrival, text))[0]


class ThroughLeases:
    """Sends requests to the engine that our router leases."""

    def __init__(self, policy: str, session: aiohttp.ClientSession) -> None:
        self.policy, self.session = policy, session

    async def start(self, engines: Sequence[MockEngine]) -> None:
        config = RouterConfig(port=free_port(), control_port=0, policy=self.policy)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", START, msgspec.json.encode(config).decode(), TOKEN
        )
        self.client = RouterClient(RouterClientConfig(address=f"127.0.0.1:{config.port}"), TOKEN, "benchmark")
        await self.client.start()
        if not await self.client.wait_connected(60):
            raise TimeoutError("the router did not become ready")
        replicas = tuple(Replica(f"engine-{number}", engine.url) for number, engine in enumerate(engines))
        pool = Pool("pool", "sglang", replicas, 256)
        self.client.publish(DesiredState(1, (Model(MODEL, Tier.CHAT, "pool", 1 << 20),), (pool,)))
        await asyncio.sleep(2 * config.poll_interval_s)  # every engine has been polled

    async def stop(self) -> None:
        await self.client.stop()
        self.process.send_signal(signal.SIGTERM)
        await self.process.wait()

    async def ask(self, arrival: Arrival, text: str) -> float:
        chain = chain_bytes(root(MODEL), text.encode())
        lease_id, begun = uuid.uuid4().hex, time.perf_counter()
        lease: Lease = await self.client.acquire(
            LeaseRequest(
                lease_id, lease_id, 0, Tier.CHAT, MODEL, arrival.prompt_tokens, 256, 30.0, arrival.organization_id,
                chain.kind, chain.hashes, session_id=arrival.session_id,
            )
        )  # fmt: skip
        granted_s = time.perf_counter() - begun
        began = functools.partial(self.client.first_token, lease_id)

        finish, usage = Finish.ENGINE_ERROR, Usage()
        try:
            ttft_s, usage = await stream(self.session, lease.engine.url, arrival, text, began)
            finish = Finish.COMPLETE
        finally:
            self.client.release(LeaseEnd(lease_id, finish, usage))
        return granted_s + ttft_s


async def stream(
    session: aiohttp.ClientSession,
    url: str,
    arrival: Arrival,
    text: str,
    began: Callable[[float, int], None] = lambda ttft_s, cached_tokens: None,
) -> tuple[float, Usage]:
    """The time to the first event, and the final usage. began: called at the first event with its time and the tokens
    cached."""
    messages = [{"role": "user", "content": text}]
    body = {"model": MODEL, "messages": messages, "max_tokens": arrival.output_tokens}
    begun, first_s, usage = time.perf_counter(), 0.0, Usage()
    async for arrived, event in engine_process.stream(session, url, body):
        usage = usage_of(event["usage"])
        if not first_s:
            first_s = arrived - begun
            began(first_s, usage.cached_tokens)
    return first_s, usage


async def trial(
    router: ThroughProxy | ThroughLeases, engines: Sequence[MockEngine], load: Sequence[Arrival]
) -> dict[str, float]:
    for engine in engines:
        engine.reset()
    await router.start(engines)
    ttft: list[float] = []
    failed = 0

    async def one(arrival: Arrival) -> None:
        nonlocal failed
        try:
            ttft.append(await router.ask(arrival, text_of(arrival)))
        except Exception:
            failed += 1

    begun, tasks = time.perf_counter(), []
    for arrival in load:
        await asyncio.sleep(max(begun + arrival.at_s - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(one(arrival)))
    await asyncio.gather(*tasks)
    await router.stop()
    prompts = [engine.prompt_tokens for engine in engines]
    requests = [engine.requests for engine in engines]
    computed = [engine.prompt_tokens - engine.cached_tokens for engine in engines]
    ttft.sort()
    return {
        "hit_rate": round(sum(engine.cached_tokens for engine in engines) / max(sum(prompts), 1), 4),
        "imbalance_requests": round(max(requests) * len(requests) / max(sum(requests), 1), 3),
        "imbalance_prefill": round(max(computed) * len(computed) / max(sum(computed), 1), 3),
        "ttft_p50_ms": round(percentile(ttft, 50) * 1e3, 1), "ttft_p99_ms": round(percentile(ttft, 99) * 1e3, 1),
        "failed": failed,
    }  # fmt: skip


def routers(arguments: argparse.Namespace, session: aiohttp.ClientSession) -> dict[str, ThroughProxy | ThroughLeases]:
    """All routers that this machine has, by name."""
    found: dict[str, ThroughProxy | ThroughLeases] = {}
    for name, command in (("smg", arguments.smg), ("vllm-router", arguments.vllm_router)):
        if not shutil.which(command):
            print(f"{name}: missing, no command {command!r}")
            continue
        start = [command, "launch"] if name == "smg" else [command]
        for policy in ("cache_aware", "round_robin"):
            found[f"{name} {policy}"] = ThroughProxy([*start, "--policy", policy], session)
    for policy in ("prefix", "round_robin"):
        found[OURS if policy == "prefix" else f"ours {policy}"] = ThroughLeases(policy, session)
    return found


async def compare(arguments: argparse.Namespace) -> None:
    engines = [MockEngine(arguments.capacity, 1.0 + 0.3 * (number % 3 - 1)) for number in range(arguments.engines)]
    runners = [await serve(engine) for engine in engines]
    results: dict[str, list[dict[str, float]]] = {}
    bounds = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        trials = routers(arguments, session)
        for seed in range(1, arguments.seeds + 1):
            load = sessions(arguments.rate, arguments.seconds, seed, SHAPE)
            bounds.append(clairvoyant_hit_rate(load, arguments.capacity * arguments.engines, BLOCK_TOKENS))
            ids = {one.session_id for one in load}
            print(f"seed {seed}: {len(load)} requests of {len(ids)} sessions, bound on the hit rate {bounds[-1]:.4f}")
            for name in random.Random(seed).sample(list(trials), len(trials)):
                result = await trial(trials[name], engines, load)
                results.setdefault(name, []).append(result)
                print(f"  {name:<24} " + ", ".join(f"{key} {value:,}" for key, value in result.items()), flush=True)
    for runner in runners:
        await runner.cleanup()
    report({name: results[name] for name in trials}, statistics.fmean(bounds))


def report(results: dict[str, list[dict[str, float]]], bound: float) -> None:
    figures = list(results[OURS][0])
    print(f"means of {len(results[OURS])} seeds with 95 % intervals; bound on the hit rate {bound:.4f}")
    means = {name: {key: interval([run[key] for run in runs]) for key in figures} for name, runs in results.items()}
    minus = {
        name: {
            key: interval([mine[key] - theirs[key] for mine, theirs in zip(results[OURS], runs, strict=True)])
            for key in figures
        }
        for name, runs in results.items()
        if name != OURS
    }
    for heading, table in (("", means), ("ours minus ", minus)):
        for name, row in table.items():
            print(
                f"{heading + name:<36}" + ", ".join(f"{key} {mean:,} ± {half:,}" for key, (mean, half) in row.items())
            )
    print(json.dumps({"bound": round(bound, 4), "routers": means, "ours_minus": minus}))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval."""
    half = student(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return round(statistics.fmean(values), 4), round(half, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=6)
    parser.add_argument("--rate", type=float, default=10.0, help="requests per second in all")
    parser.add_argument("--seconds", type=float, default=25.0, help="per router and seed")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--capacity", type=int, default=60_000, help="KV tokens per engine")
    parser.add_argument("--smg", default=os.environ.get("SLIPSTREAM_SMG", "smg"))
    parser.add_argument("--vllm-router", default=os.environ.get("SLIPSTREAM_VLLM_ROUTER", "vllm-router"))
    asyncio.run(compare(parser.parse_args()))


if __name__ == "__main__":
    main()
