"""What a simulation of a deployment's own traffic is worth: predicted goodput against that of the same load run again.

    python -m benchmarks.workload_replay [--replicas 3] [--rate 3] [--seconds 60] [--node 70b-fp8-2xh100]

A whole deployment (`slipstream up`: gateway, router, worker, databases) serves conversations on engines that keep a
real prefix cache and take the time of a modelled node, on the wall clock. Then `slipstream usage workload --export`
writes the trace of what it served, `slipstream tools simulate --recorded` replays that, and the same load is run
a second time: the
same times, lengths and sharing, other tokens. Nothing of the second run is known to the prediction. Goodput: requests
per second and replica that kept both promises, those of the simulator, behind its warm-up; for the live run by the
client's clock. A second line of the simulation answers for eight more replicas. Criterion, fixed beforehand: an error
of at most 15 %; with `--check` a run that misses it ends with an error. Last line: JSON {"goodput_measured",
"goodput_predicted", "error"}.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web

from benchmarks.ample_limits import AMPLE_LIMITS
from benchmarks.bounds import add_check, tell
from benchmarks.placement_live import BLOCK_TOKENS, MockEngine, serve
from contracts.prefix import block_hashes, chain_tokens, root
from engines.performance.job import Job
from tests.deployment import Deployment, deployment, fake_fleet
from tools.bench.answer import Answer
from tools.bench.client import Client
from tools.bench.prompts import Prompts
from tools.simulator.arrival import Arrival
from tools.simulator.config import SimulatorConfig
from tools.simulator.course import percentile
from tools.simulator.sessions import SessionsConfig, sessions

MODEL, TOKEN = "fake", "benchmark"
TOKENIZER = Path(__file__).parents[1] / "models" / "slipstream-chat"
IDS = range(300, 2_000)
"""Token ids that are plain text in the tokenizer's vocabulary."""
CONTEXT_TOKENS = 65_536
CRITERION = 0.15
MORE_REPLICAS = 8
SHAPE = SessionsConfig(
    tenants=6, system_tokens=(1_024, 4_096), turns=(2, 6), user_tokens=600, answer_tokens=120, longest_answer=400,
    pause_s=8.0, block_tokens=BLOCK_TOKENS,
)  # fmt: skip


class PacedEngine(MockEngine):
    """A mock engine for prompts of token ids, whose blocks are the cache keys."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a completion in SGLang's dialect, with an event for the first token and one for the last."""
        body = await request.json()
        ids = body["prompt"]
        self._numbered += 1
        blocks = block_hashes(chain_tokens(root(MODEL), ids).hashes)
        job = Job(str(self._numbered), len(ids), max(int(body["max_tokens"]), 2), blocks)
        self.news[job.id] = asyncio.Queue()
        self.engine.submit(job, asyncio.get_running_loop().time())
        self._follow()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for text, generated, finish in (("t", 1, None), (" t", job.output_tokens, "length")):
            await self.news[job.id].get()
            usage = {
                "prompt_tokens": job.prompt_tokens, "completion_tokens": generated,
                "total_tokens": job.prompt_tokens + generated,
                "prompt_tokens_details": {"cached_tokens": job.cached_tokens},
            }  # fmt: skip
            choices = [{"index": 0, "text": text, "finish_reason": finish}]
            event = {"id": job.id, "object": "text_completion", "created": 1, "model": MODEL, "choices": choices}
            await response.write(b"data: " + msgspec.json.encode({**event, "usage": usage}) + b"\n\n")
        del self.news[job.id]
        await response.write(b"data: [DONE]\n\n")
        return response


async def engines(number: int, name: str) -> None:
    """Serve `number` engines until killed; prints the URL of each."""
    for _ in range(number):
        engine = PacedEngine(0, name=name)
        await serve(engine)
        print(engine.url, flush=True)
    await asyncio.Event().wait()


async def run(platform: Deployment, key: str, load: Sequence[Arrival], seed: int) -> list[Answer]:
    """Send every request at its time; returns the answers."""
    prompts, answers = Prompts(seed, IDS, BLOCK_TOKENS), [Answer(arrival) for arrival in load]
    bodies = [
        msgspec.json.encode({
            "model": MODEL, "prompt": prompts.of(number, arrival), "max_tokens": arrival.output_tokens, "stream": True,
        })
        for number, arrival in enumerate(load)
    ]  # fmt: skip
    async with Client(platform.url, key, "/completions") as client:
        begun, tasks = time.perf_counter(), []
        for answer, body in zip(answers, bodies, strict=True):
            await asyncio.sleep(max(begun + answer.arrival.at_s - time.perf_counter(), 0))
            tasks.append(asyncio.create_task(client.send(answer, body)))
        await asyncio.gather(*tasks)
    return answers


def figures(answers: Sequence[Answer], replicas: int) -> dict[str, float]:
    """The figures of `tools.simulator.summary`, over the same part of the arrivals."""
    times = sorted(answer.arrival.at_s for answer in answers)
    begin = times[int(len(times) * SimulatorConfig().warm_up)]
    counted = [answer for answer in answers if answer.arrival.at_s >= begin]
    window = max(times[-1] - begin, 1e-9) * replicas
    ttft_ms = sorted(answer.first_s * 1e3 for answer in counted if answer.first_s is not None)
    return {
        "offered": len(counted) / window,
        "goodput": sum(answer.kept() for answer in counted) / window,
        "shed": sum(answer.ended_s is None for answer in counted) / len(counted),
        "ttft_p50_ms": percentile(ttft_ms, 50),
        "ttft_p99_ms": percentile(ttft_ms, 99),
    }


async def simulated(trace: Path, replicas: int, node: str) -> dict[str, float]:
    """The figures that `slipstream tools simulate` predicts for the trace, as the mean of its runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream", "tools", "simulate", "--trace", str(trace), "--recorded", "--node", node,
        "--replicas", str(replicas), "--spread", "0", "--seeds", "3", "--policy", "ours", "--json",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    (row,) = msgspec.json.decode(output)
    names = ("offered", "goodput", "shed", "ttft_p50_ms", "ttft_p99_ms")
    return {name: sum(one[name] for one in row["runs"]) / len(row["runs"]) for name in names}


def show(name: str, found: dict[str, float]) -> None:
    print(
        f"{name:<28} offered {found['offered']:6.3f} goodput {found['goodput']:6.3f} shed {found['shed']:6.1%} "
        f"TTFT p50 {found['ttft_p50_ms']:7,.0f} p99 {found['ttft_p99_ms']:7,.0f} ms",
        flush=True,
    )


async def all_written(platform: Deployment, requests: int) -> None:
    """Return once the ledger and the samples have all served requests."""
    async with platform.database() as database:
        while (  # noqa: ASYNC110  the database sends no notification
            await database.fetchval("SELECT count(*) FROM gateway.prefix_samples") < requests
            or await database.fetchval("SELECT count(DISTINCT request_id) FROM gateway.usage_events") < requests
        ):
            await asyncio.sleep(0.2)


async def measure(platform: Deployment, arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    replicas, trace = arguments.replicas, folder / "trace.jsonl"
    key = await platform.make_key(*AMPLE_LIMITS)
    load = sessions(arguments.rate * replicas, arguments.seconds, arguments.seed, SHAPE)
    print(f"{len(load)} requests in {arguments.seconds:g} s on {replicas} engines", flush=True)
    since = datetime.now(UTC)
    first = await run(platform, key, load, 1)
    served = sum(answer.ended_s is not None for answer in first)
    async with asyncio.timeout(60):
        await all_written(platform, served)
    print(await platform.command("usage", "workload", "--since", since.isoformat(), "--export", str(trace)), flush=True)
    predicted = await simulated(trace, replicas, arguments.node)
    more = await simulated(trace, replicas + MORE_REPLICAS, arguments.node)
    measured = figures(await run(platform, key, load, 2), replicas)
    show("first run", figures(first, replicas))
    show("second run", measured)
    show("predicted from the first", predicted)
    show(f"on {replicas + MORE_REPLICAS} replicas", more)
    return {
        "goodput_measured": round(measured["goodput"], 4),
        "goodput_predicted": round(predicted["goodput"], 4),
        "error": round(predicted["goodput"] / measured["goodput"] - 1, 4) if measured["goodput"] else float("nan"),
    }


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--rate", type=float, default=3.0, help="requests per second and replica")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--node", default="70b-fp8-2xh100", help="modelled machine and model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engines", action="store_true", help="only serve the engines")
    add_check(parser)
    arguments = parser.parse_args()
    if arguments.engines:
        await engines(arguments.replicas, arguments.node)
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.workload_replay", "--engines", "--replicas", str(arguments.replicas),
        "--node", arguments.node, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        urls = [(await process.stdout.readline()).decode().strip() for _ in range(arguments.replicas)]
        fleet = fake_fleet(*urls, model=MODEL, tokenizer=str(TOKENIZER), context_tokens=CONTEXT_TOKENS)
        with tempfile.TemporaryDirectory() as folder:
            async with deployment(environment=fleet, token=TOKEN, on_disk=True) as platform:
                found = await measure(platform, arguments, Path(folder))
    finally:
        process.kill()
        await process.wait()
    error: Any = found["error"]
    print(msgspec.json.encode(found).decode())
    beyond = [] if abs(error) <= CRITERION else [f"goodput is off by {error:+.1%}, more than {CRITERION:.0%}"]
    tell(beyond, arguments.check)


if __name__ == "__main__":
    uvloop.run(main())
