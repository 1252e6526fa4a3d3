"""Holds many paced streams on one gateway: are any cut, does its memory stay flat, how much later do tokens come?

`python -m benchmarks.held_streams [--streams 512] [--seconds 600] [--spacing-ms 50] [--direct-seconds 60]`: a fake
engine sends each stream a token every `spacing-ms`. The same client first holds the streams at the engine itself, then
through a whole deployment (keys, limits, journal, ledger and router on). The added gap is the 99th percentile of the
time between two reads of a stream through the gateway, less the one at the engine. Everything shares this machine, so
an idle one with two cores is needed. Ends with one JSON line; exit code 1 with `--check` if a stream is cut, the added
gap is above 10 ms, or the gateway's memory grows after the first quarter by more than a tenth plus the text that it may
keep for each stream.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from typing import cast

import msgspec
import psutil
import uvloop

from benchmarks.ample_limits import AMPLE_LIMITS
from benchmarks.bounds import add_check, tell
from benchmarks.processes import cpu_s
from gateway.wire.delivered import KEPT_CHARACTERS
from tests.deployment import Deployment, deployment, fake_fleet
from tests.fakes.process import FakeEngineProcess, fake_engine

TOKEN = "held"
STEP_MS = 0.1
ADDED_MS = 10.0
"""The limit of `--check` on the growth of the 99th percentile."""
GROWTH = 1.1
"""The limit of `--check` on the growth of memory from a quarter of the time to its end, as a factor, without kept
text."""


class Stream(asyncio.Protocol):
    """One streamed chat; counts its tokens and the gaps between reads, in steps of `STEP_MS`."""

    def __init__(self, request: bytes, gaps: Counter[int]) -> None:
        self._request, self._gaps = request, gaps
        self._last_s = 0.0
        self._tail = b""
        self.tokens = 0
        self.head = b""
        self.whole: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether it ended with `[DONE]`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        if not self.head:
            self.head = data[:300]
        tokens = data.count(b'"content":"') - data.count(b'"content":""')
        if tokens:
            if self._last_s:
                self._gaps[int((now_s - self._last_s) * 1e3 / STEP_MS)] += 1
            self._last_s = now_s
            self.tokens += tokens
        self._tail = (self._tail + data)[-64:]
        whole = b"data: [DONE]" in self._tail
        if whole or self._tail.endswith(b"\r\n0\r\n\r\n") or not self.accepted:
            self._end(whole)
            self._transport.close()

    @property
    def accepted(self) -> bool:
        """Whether the response's status is 200."""
        return b" 200 " in self.head.partition(b"\r\n")[0]

    def connection_lost(self, error: Exception | None) -> None:
        self._end(False)

    def _end(self, whole: bool) -> None:
        if not self.whole.done():
            self.whole.set_result(whole)


class Held(msgspec.Struct):
    """The figures of a number of streams held at once."""

    cut: int
    tokens: int
    gap_p50_ms: float
    gap_p99_ms: float
    gap_max_ms: float


async def hold(port: int, key: str, streams: int, tokens: int) -> Held:
    """Hold all streams at once, started at different moments of one second. Raises RuntimeError if one is refused."""
    body = msgspec.json.encode(
        {"model": "fake", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens, "stream": True}
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: held\r\nAuthorization: Bearer {key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    gaps: Counter[int] = Counter()
    source = random.Random(1)

    async def one() -> Stream:
        await asyncio.sleep(source.random())
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: Stream(head.encode() + body, gaps), "127.0.0.1", port
        )
        await stream.whole
        if not stream.accepted:
            raise RuntimeError(f"port {port} answered {stream.head!r}")
        return stream

    ended = await asyncio.gather(*(one() for _ in range(streams)))
    return Held(
        cut=sum(not stream.whole.result() or stream.tokens != tokens for stream in ended),
        tokens=sum(stream.tokens for stream in ended),
        gap_p50_ms=quantile_ms(gaps, 0.5),
        gap_p99_ms=quantile_ms(gaps, 0.99),
        gap_max_ms=round(max(gaps) * STEP_MS, 1),
    )


def quantile_ms(gaps: Counter[int], share: float) -> float:
    """The gap that this share of the gaps does not exceed, rounded down to a step."""
    left = share * gaps.total()
    for step in sorted(gaps):
        left -= gaps[step]
        if left <= 0:
            return round(step * STEP_MS, 1)
    raise ValueError("no gaps")


async def watched_mib(pid: int, every_s: float, into: list[float]) -> None:
    """Append the process's resident memory to `into` and print it, until cancelled."""
    process = psutil.Process(pid)
    while True:
        into.append(process.memory_info().rss / 2**20)
        print(f"  {len(into) * every_s - every_s:5.0f} s  {into[-1]:6.1f} MiB", file=sys.stderr)
        await asyncio.sleep(every_s)


async def measure(
    engine: FakeEngineProcess, platform: Deployment, options: argparse.Namespace
) -> dict[str, float | int]:
    """Hold the streams at the engine and then through the gateway; returns the JSON object."""
    spacing_s = options.spacing_ms / 1e3
    key = await platform.make_key(*AMPLE_LIMITS)
    gateway = await platform.pid("gateway-1")
    port = int(platform.url.rpartition(":")[2])

    tokens = int(options.direct_seconds / spacing_s)
    await engine.control(ttft_s=0.02, inter_token_s=spacing_s, tokens=tokens)
    direct = await hold(engine.port, TOKEN, options.streams, tokens)
    print(f"at the engine        gap p50 {direct.gap_p50_ms} p99 {direct.gap_p99_ms} max {direct.gap_max_ms} ms")

    tokens = int(options.seconds / spacing_s)
    await engine.control(tokens=tokens)
    memory_mib: list[float] = []
    watching = asyncio.create_task(watched_mib(gateway, max(options.seconds / 20, 1.0), memory_mib))
    before_s = cpu_s(gateway)
    try:
        through = await hold(port, key, options.streams, tokens)
    finally:
        watching.cancel()
    cpu_us = (cpu_s(gateway) - before_s) / through.tokens * 1e6
    early_mib, late_mib = memory_mib[len(memory_mib) // 4], memory_mib[-1]
    print(f"through the gateway  gap p50 {through.gap_p50_ms} p99 {through.gap_p99_ms} max {through.gap_max_ms} ms")
    print(f"{through.tokens:,} tokens, {through.cut} of {options.streams} streams cut, {cpu_us:.1f} us of CPU a token")
    print(f"gateway's memory {early_mib:.0f} MiB after a quarter of the time, {late_mib:.0f} MiB at its end")
    return {
        "streams": options.streams,
        "seconds": options.seconds,
        "cut": through.cut,
        "added_gap_p99_ms": round(through.gap_p99_ms - direct.gap_p99_ms, 1),
        "gap_p99_ms": through.gap_p99_ms,
        "gap_p99_direct_ms": direct.gap_p99_ms,
        "gap_max_ms": through.gap_max_ms,
        "memory_growth": round(late_mib / early_mib, 3),
        "memory_bound": round(GROWTH + options.streams * KEPT_CHARACTERS / 2**20 / early_mib, 3),
        "token_cpu_us": round(cpu_us, 1),
    }


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=600.0, help="through the gateway")
    parser.add_argument("--direct-seconds", type=float, default=60.0, help="at the engine")
    parser.add_argument("--spacing-ms", type=float, default=50.0, help="between two tokens of a stream")
    add_check(parser)
    options = parser.parse_args()
    longest = int(max(options.seconds, options.direct_seconds) / options.spacing_ms * 1e3)
    async with fake_engine(token=TOKEN) as engine:
        environment = {
            **fake_fleet(engine.url, driver="openai", context_tokens=longest + 1_000),
            "SLIPSTREAM_GATEWAY__CONNECTIONS__MAX_CONNECTIONS_PER_ADDRESS": "0",  # all streams are this process's
        }
        async with deployment(environment=environment, token=TOKEN, on_disk=True) as platform:
            figures = await measure(engine, platform, options)
    print(msgspec.json.encode(figures).decode())
    bounds = {"cut": 0.0, "added_gap_p99_ms": ADDED_MS, "memory_growth": figures["memory_bound"]}
    missed = [f"{name} {figures[name]:g}, at most {most:g}" for name, most in bounds.items() if figures[name] > most]
    tell(missed, options.check)


if __name__ == "__main__":
    uvloop.run(main())
