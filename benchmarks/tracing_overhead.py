"""What tracing costs a gateway at one request in a hundred, from what it costs with none chosen and with every one.

`python -m benchmarks.tracing_overhead [--rounds 600] [--requests 64] [--stream-rounds 150]`. Of requests for one token,
which are the least a gateway can be asked for, and of streams of 64 tokens, 5 ms apart, as a short answer is. A
deployment of this tree stands in front of a fake engine, and a collector takes its spans. Two processes of one program
differ by some percent for as long as they live, which is more than is asked about here: so it is one gateway, whose
making of spans is switched off and on between blocks of requests (`switched_tracing/`). CPU is by nanoseconds from
/proc/PID/task/*/schedstat. The thread that sends spans does so whenever five seconds are over, in whichever block: all
its time is put down to the requests of the blocks with tracing.

Requests are chosen one by one, so that what one in a hundred costs is 99 parts of what it costs to choose none and one
part of what it costs to choose all. Measured so it is better known than by a run with one in a hundred, where
what is asked about is smaller than what such runs differ by. The last line is JSON: the cost of a request over that of
tracing off, as the median of the rounds' ratios, with the bounds of its 95 % confidence interval.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import uvloop

from benchmarks.gateway_in_turn import HERE, WARM_UP, Side, side
from benchmarks.gateway_overhead import closed_loop
from benchmarks.paired_ratio import compared
from tests.fakes.collector import collector

SWITCH = Path(__file__).parent / "switched_tracing"
GUARD_S = 30
Load = Callable[[Side, int], Awaitable[None]]
STREAM_TOKENS, SPACING_S, STREAMS = 64, 0.005, 32


class Tracing:
    """A gateway's, from without."""

    def __init__(self, gateway: Side, said: Path) -> None:
        self._gateway = gateway
        self._said = said
        self.sender = 0
        """Id of the thread that sends spans."""

    async def switch(self, to: str) -> None:
        """To "on" or "off"; returns when it is so."""
        os.kill(self._gateway.pid, signal.SIGUSR2)
        async with asyncio.timeout(GUARD_S):
            while not self._said.exists() or not self._said.read_text().startswith(f"{to} "):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        self.sender = int(self._said.read_text().split()[1])

    def sender_us(self) -> float:
        """CPU of sending so far."""
        return self._gateway.thread_us(self.sender)


async def streams(gateway: Side, requests: int) -> None:
    """Short answers, as an engine generates them."""
    await gateway.engine.control(ttft_s=0.0, inter_token_s=SPACING_S, tokens=STREAM_TOKENS)
    await closed_loop(gateway.client, requests, STREAMS, STREAM_TOKENS)


class Cost(msgspec.Struct):
    """Of a request, over that with tracing off. ci95: where it lies."""

    percent: int
    ratio: float
    ci95: tuple[float, float]
    request_us: int
    rounds: int
    spans: int


def of_one_percent(none: Cost, every: Cost) -> dict[str, float | list[float]]:
    """From what it costs to choose no request, and every one."""
    low, middle, high = (
        round(0.99 * of_none + 0.01 * of_every, 4)
        for of_none, of_every in zip(
            (none.ci95[0], none.ratio, none.ci95[1]), (every.ci95[0], every.ratio, every.ci95[1]), strict=True
        )
    )
    return {"ratio": middle, "ci95": [low, high]}


async def ratios(percent: int, rounds: int, requests: int, load: Load) -> Cost:
    """With that many requests of a hundred traced. load: asks for so many."""
    async with contextlib.AsyncExitStack() as stack:
        there = stack.enter_context(collector())
        said = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "said"
        settings = {
            "SLIPSTREAM_TRACING__OTLP_ENDPOINT": there.url,
            "SLIPSTREAM_TRACING__SAMPLE_RATIO": str(percent / 100),
            "PYTHONPATH": str(SWITCH),
            "SWITCHED_TRACING": str(said),
        }
        gateway = await stack.enter_async_context(side(HERE, settings))
        tracing = Tracing(gateway, said)
        await load(gateway, WARM_UP)
        await tracing.switch("off")
        await tracing.switch("on")
        cost_us: dict[str, list[float]] = {"on": [], "off": []}
        sent_before_us, order = tracing.sender_us(), ["on", "off"]
        for _ in range(rounds):
            for state in order:
                before = gateway.cpu_us() - tracing.sender_us()
                await load(gateway, requests)
                cost_us[state].append((gateway.cpu_us() - tracing.sender_us() - before) / requests)
                if state == order[0]:
                    await tracing.switch(order[1])
            order.reverse()
        if percent:
            await asyncio.to_thread(there.wait_for, "place")
        sending_us = (tracing.sender_us() - sent_before_us) / (rounds * requests)
        spans = len(there.spans)
    off_us = statistics.median(cost_us["off"])
    making, low, high = compared(cost_us["off"], cost_us["on"])
    sending = sending_us / off_us
    print(f"{percent:>3} %: {off_us:.0f} us a request without, {making - 1:+.2%} making, {sending:+.2%} sending spans")
    bounds = (round(low + sending, 4), round(high + sending, 4))
    return Cost(percent, round(making + sending, 4), bounds, round(off_us), rounds, spans)


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=600, help="with none chosen; a tenth of it with all")
    parser.add_argument("--stream-rounds", type=int, default=150)
    parser.add_argument("--requests", type=int, default=64)
    arguments = parser.parse_args()
    line: dict[str, object] = {}
    loads: tuple[tuple[str, Load, int], ...] = (
        ("one_token", Side.ask, arguments.rounds),
        ("stream", streams, arguments.stream_rounds),
    )
    for name, load, rounds in loads:
        none = await ratios(0, rounds, arguments.requests, load)
        every = await ratios(100, max(1, rounds // 10), arguments.requests, load)
        line |= {f"{name}_1_percent": of_one_percent(none, every), f"{name}_0_percent": none}
        line[f"{name}_100_percent"] = every
    line |= {"requests": arguments.requests, "load": round(os.getloadavg()[0], 1)}
    print(msgspec.json.encode(line).decode())


if __name__ == "__main__":
    uvloop.run(main())
