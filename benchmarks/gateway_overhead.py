"""What the gateway costs: CPU per request, CPU per streamed token, and time added to the first token.

A fast fake engine is reached directly and through a whole deployment (keys, limits, journal, ledger, router all on), by
the same client, in one run. CPU is the gateway process' own, user and kernel, from /proc/PID/task/*/schedstat: steady
on a busy machine, where wall times are not. What a request costs grows with its prompt, which is rendered, tokenized
and hashed, so it is measured at several lengths, once with prompts that nobody has sent and once with conversations
that grow; `request_cpu_us` is that of the shortest new one, streams and first tokens have known ones of that length.
Run: `python -m benchmarks.gateway_overhead` [--streams 200] [--requests 4000] [--prompt-tokens 20,2000,10000]. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import uvloop

from benchmarks.ample_limits import AMPLE_LIMITS
from benchmarks.processes import cpu_us
from engines.drivers.base import EngineRequest
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.tokenizer import Tokenizer
from evals.slices.vocabulary import COMMON
from tests.deployment import Deployment, deployment, fake_fleet
from tests.fakes.process import FakeEngineProcess, fake_engine

TOKENS = 64
SPACING_S = 0.025
TOKEN = "benchmark"
TOKENIZER = Path(__file__).parents[1] / "models" / "slipstream-chat"
CONTEXT_TOKENS = 16_384
PROMPTS = 32
"""The number of prompts of each length, used in turn: no two successive ones begin alike."""
FEWEST_REQUESTS = 200
ENDS = (b'"finish_reason":"', b"data: [DONE]")
"""The end of a complete stream; a failed one has no finish reason, a cut one has neither."""
END_BYTES = 1_024


class Client:
    """Sends one kind of request to one URL and times first tokens."""

    def __init__(self, url: str, key: str, model: str, prompts: Sequence[str]) -> None:
        self.url = url
        self.key = key
        self._connections = EngineConnections(OneKey(key))
        self._model = model
        self._numbers = itertools.count()
        self.use(prompts)

    def use(self, prompts: Sequence[str], *, fresh: bool = False, grows: bool = False) -> None:
        """Send these prompts in turn from now on. fresh: each begins with a number of its own, so none repeats. grows:
        each is the first message of a conversation whose last message is new."""
        self._prompts = itertools.cycle(prompts)
        self._fresh, self._grows = fresh, grows

    def _messages(self) -> list[dict[str, str]]:
        prompt, number = next(self._prompts), next(self._numbers)
        messages = [{"role": "user", "content": f"{number} {prompt}" if self._fresh else prompt}]
        if self._grows:
            messages.append({"role": "assistant", "content": "Yes."})
            messages.append({"role": "user", "content": f"Go on with part {number}, please."})
        return messages

    async def stream(self, max_tokens: int) -> float:
        """Send one streamed chat; returns the time to its first generated text in seconds. Raises RuntimeError if the
        answer is no complete stream."""
        body = {
            "model": self._model,
            "messages": self._messages(),
            "max_tokens": max_tokens,
            "stream": True,
        }
        request = EngineRequest("POST", "/v1/chat/completions", msgspec.json.encode(body))
        started_s = time.perf_counter()
        stream = await self._connections.open(self.url, request, 30.0)
        first_s = 0.0
        seen = last = b""
        while data := await stream.read():
            last = (last + data)[-END_BYTES:]
            if not first_s:
                seen += data
                if b'"content":"' in seen.replace(b'"content":""', b""):
                    first_s = time.perf_counter() - started_s
        if stream.status != 200 or any(end not in last for end in ENDS):
            raise RuntimeError(f"{self.url} answered {stream.status}: {seen[:300]!r} … {last!r}")
        return first_s

    async def whole(self, max_tokens: int) -> None:
        """Send one chat that is not streamed. Raises RuntimeError if it has no answer."""
        body = {"model": self._model, "messages": self._messages(), "max_tokens": max_tokens}
        request = EngineRequest("POST", "/v1/chat/completions", msgspec.json.encode(body))
        status, answer = await self._connections.fetch(self.url, request, 30.0, 1 << 20)
        if status != 200 or ENDS[0] not in answer:
            raise RuntimeError(f"{self.url} answered {status}: {answer[:300]!r}")

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()


@contextlib.asynccontextmanager
async def bare_relay(engine_port: int) -> AsyncIterator[tuple[int, str]]:
    """Run a relay that only copies bytes; yields its process id and URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.bare_relay", str(engine_port), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = int((await process.stdout.readline()).split()[1])
        yield process.pid, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def paced(client: Client, streams: int, rounds: int) -> list[float]:
    """Run `streams` streams at a time, started at different moments; returns the first-token times of all."""
    random.seed(1)

    async def one() -> list[float]:
        await asyncio.sleep(random.uniform(0, TOKENS * SPACING_S))
        return [await client.stream(TOKENS) for _ in range(rounds)]

    return [first_s for firsts in await asyncio.gather(*(one() for _ in range(streams))) for first_s in firsts]


def prompts_of(tokenizer: Tokenizer, tokens: int) -> list[str]:
    """Prompts of common words in random order, each with at least `tokens` tokens and hardly more."""
    source = random.Random(tokens)
    prompts = []
    for number in range(PROMPTS):
        words = [str(number)]
        while (missing := tokens - tokenizer.count(" ".join(words))) > 0:
            words += source.choices(COMMON, k=max(1, missing // 4))
        prompts.append(" ".join(words))
    return prompts


async def closed_loop(client: Client, requests: int, workers: int, tokens: int = 1, *, streamed: bool = True) -> None:
    """Run requests of `tokens` tokens each, `workers` at a time."""
    send = client.stream if streamed else client.whole

    async def one() -> None:
        for _ in range(requests // workers):
            await send(tokens)

    await asyncio.gather(*(one() for _ in range(workers)))


async def measure(engine: FakeEngineProcess, platform: Deployment, arguments: argparse.Namespace) -> dict[str, object]:
    """Measure and print all figures; returns the JSON object."""
    key = await platform.make_key(*AMPLE_LIMITS)
    lengths = sorted(int(tokens) for tokens in arguments.prompt_tokens.split(","))
    tokenizer = Tokenizer.load(TOKENIZER)
    prompts = {tokens: prompts_of(tokenizer, tokens) for tokens in lengths}
    shortest = prompts[lengths[0]]
    direct, through = Client(engine.url, TOKEN, "fake", shortest), Client(platform.url, key, "fake", shortest)
    gateway, router = await platform.pid("gateway-1"), await platform.pid("router")

    await engine.control(ttft_s=0.0, inter_token_s=0.0, tokens=TOKENS)
    await closed_loop(through, 400, 8)
    by_length: dict[str, dict[str, float]] = {}
    for tokens, of_length in prompts.items():
        requests = max(int(arguments.requests / (1 + tokens / 500)), FEWEST_REQUESTS)
        through.use(of_length, fresh=True)
        before, before_router = cpu_us(gateway), cpu_us(router)
        await closed_loop(through, requests, 8)
        spent = {
            "gateway": (cpu_us(gateway) - before) / requests,
            "router": (cpu_us(router) - before_router) / requests,
        }
        through.use(of_length, grows=True)
        await closed_loop(through, 2 * PROMPTS, 8)
        before = cpu_us(gateway)
        await closed_loop(through, requests, 8)
        spent["gateway_grown"] = (cpu_us(gateway) - before) / requests
        by_length[str(tokens)] = {name: round(value, 1) for name, value in spent.items()}
        print(
            f"request          {spent['gateway']:8.0f} us CPU in the gateway, {spent['router']:.0f} in the router: new "
            f"prompt of {tokens:,} tokens, {requests:,} requests; {spent['gateway_grown']:.0f} us where it has grown"
        )
    request_cpu_us, router_cpu_us = by_length[str(lengths[0])]["gateway"], by_length[str(lengths[0])]["router"]
    through.use(shortest)

    await engine.control(ttft_s=0.02, inter_token_s=SPACING_S, tokens=TOKENS)
    await paced(through, arguments.streams, 1)
    firsts_direct = await paced(direct, arguments.streams, 1)
    before, before_engine = cpu_us(gateway), cpu_us(engine.process.pid)
    firsts = await paced(through, arguments.streams, arguments.rounds)
    spent_us, engine_us = cpu_us(gateway) - before, cpu_us(engine.process.pid) - before_engine
    firsts_direct += await paced(direct, arguments.streams, 1)
    async with bare_relay(engine.port) as (bare_pid, url):
        bare = Client(url, TOKEN, "fake", shortest)
        await paced(bare, arguments.streams, 1)
        before_bare = cpu_us(bare_pid)
        firsts_bare = await paced(bare, arguments.streams, arguments.rounds)
        bare_us = cpu_us(bare_pid) - before_bare
        await bare.close()
    tokens = arguments.streams * arguments.rounds * TOKENS
    paced_token_cpu_us = spent_us / tokens
    p50_ms = [statistics.median(values) * 1e3 for values in (firsts, firsts_direct)]
    p99_ms = [statistics.quantiles(values, n=100)[98] * 1e3 for values in (firsts, firsts_direct)]
    print(f"paced token      {paced_token_cpu_us:8.1f} us CPU, set-up included ({arguments.streams} streams)")
    print(f"                 {(spent_us - request_cpu_us * tokens / TOKENS) / tokens:8.1f} us CPU, set-up taken off")
    print(f"                 {bare_us / tokens:8.1f} us CPU a token in a relay that only copies bytes: the limit")
    print(f"                 {engine_us / tokens:8.1f} us CPU a token in the fake engine, which only writes")
    print(f"first token p50  {p50_ms[0]:8.2f} ms through, {p50_ms[1]:.2f} ms direct")
    print(f"first token p50  {statistics.median(firsts_bare) * 1e3:8.2f} ms through the relay that only copies")
    print(f"first token p99  {p99_ms[0]:8.2f} ms through, {p99_ms[1]:.2f} ms direct")
    print("phases p50       " + ", ".join(f"{name} {value:.2f}" for name, value in (await phases_ms(platform)).items()))
    await direct.close()
    await through.close()
    return {
        "request_cpu_us": request_cpu_us,
        "request_cpu_us_by_prompt_tokens": by_length,
        "paced_token_cpu_us": round(paced_token_cpu_us, 1),
        "added_ttft_p50_ms": round(p50_ms[0] - p50_ms[1], 2),
        "added_ttft_p99_ms": round(p99_ms[0] - p99_ms[1], 2),
        "router_request_cpu_us": router_cpu_us,
        "bare_relay_token_cpu_us": round(bare_us / tokens, 1),
        "token_cpu_against_bare": round(spent_us / bare_us, 2),
        "fake_engine_token_cpu_us": round(engine_us / tokens, 1),
        "ttft_direct_p50_ms": round(p50_ms[1], 2),
    }


async def phases_ms(platform: Deployment) -> dict[str, float]:
    """The median of every phase of the paced requests up to the first token, from the gateway's traces."""
    async with platform.database() as connection:
        rows = await connection.fetch(
            """SELECT key, percentile_cont(0.5) WITHIN GROUP (ORDER BY value::float8) AS median
               FROM gateway.request_traces, jsonb_each_text(phases_ms) WHERE total_ms > 1000 GROUP BY key"""
        )
    found = {row["key"]: row["median"] for row in rows}
    return {name: found[name] for name in ("auth", "limit", "queue", "route", "engine", "first_token") if name in found}


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--prompt-tokens", default="20,2000,10000", help="commas between; the shortest is paced too")
    arguments = parser.parse_args()
    print("starting a deployment; the first figures follow within a minute …", file=sys.stderr)
    async with fake_engine(token=TOKEN) as engine:
        environment = fake_fleet(engine.url, driver="embedded", tokenizer=str(TOKENIZER), context_tokens=CONTEXT_TOKENS)
        async with deployment(environment=environment, token=TOKEN, on_disk=True) as platform:
            figures = await measure(engine, platform, arguments)
    print(msgspec.json.encode(figures).decode())


if __name__ == "__main__":
    uvloop.run(main())
