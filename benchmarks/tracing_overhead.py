"""What tracing costs a gateway at one request in a hundred, from what it costs with none chosen and with every one.

`python -m benchmarks.tracing_overhead [--rounds 60] [--requests 64] [--stream-rounds 40]`. Of requests for one token,
which are the least a gateway can be asked for, and of streams of 64 tokens, 5 ms apart, as a short answer is. A
deployment of this tree stands in front of a fake engine, and a collector takes its spans. Two processes of one program
differ by some percent for as long as they live, which is more than is asked about here: so it is one gateway, whose
making of spans is switched off and on between blocks of requests (`switched_tracing/`). CPU is by nanoseconds from
/proc/PID/task/*/schedstat. The thread that sends spans does so whenever five seconds are over, in whichever block: all
its time is put down to the requests of the blocks with tracing.

Requests are chosen one by one, so that what one in a hundred costs is 99 parts of what it costs not to choose one and
one part of what it costs to choose one. The latter is measured as said. The former is a few microseconds, far less than
what blocks of requests differ by (the same gateway against itself: up to five percent): so the calls that are made for
such a request are timed by themselves, and put in proportion to a request's CPU. The last line is JSON: the cost of a
request over that of tracing off; where measured, as the median of the rounds' ratios, with the bounds of its 95 %
confidence interval.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from benchmarks.gateway_in_turn import HERE, WARM_UP, Side, side
from benchmarks.gateway_overhead import closed_loop
from benchmarks.paired_ratio import compared
from gateway.serving.request import Arrival
from gateway.serving.request_spans import Ended, RequestSpans
from telemetry.sampler import Sampler
from telemetry.span_queue import SpanQueue
from telemetry.tracing import Tracing
from tests.fakes.collector import collector
from tests.gateway.serving.harness import CHAT

SWITCH = Path(__file__).parent / "switched_tracing"
GUARD_S = 30
Load = Callable[[Side, int], Awaitable[None]]
TIMED = 100_000
"""The number of unchosen requests that are timed."""
STREAM_TOKENS, SPACING_S, STREAMS = 64, 0.005, 32


class Sending:
    """Switches a gateway's making of spans, and reads the CPU time of sending them."""

    def __init__(self, gateway: Side, state_file: Path) -> None:
        self._gateway = gateway
        self._state_file = state_file
        self.sender = 0
        """The id of the thread that sends spans."""

    async def switch(self, to: str) -> None:
        """Switch to "on" or "off"; returns once the gateway has switched."""
        os.kill(self._gateway.pid, signal.SIGUSR2)
        async with asyncio.timeout(GUARD_S):
            while not self._state_file.exists() or not self._state_file.read_text().startswith(f"{to} "):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        self.sender = int(self._state_file.read_text().split()[1])

    def sender_us(self) -> float:
        """The CPU time of sending spans so far."""
        return self._gateway.thread_us(self.sender)


async def streams(gateway: Side, requests: int) -> None:
    """Send requests for short answers, with tokens at an engine's pace."""
    await gateway.engine.control(ttft_s=0.0, inter_token_s=SPACING_S, tokens=STREAM_TOKENS)
    await closed_loop(gateway.client, requests, STREAMS, STREAM_TOKENS)


class Cost(msgspec.Struct):
    """The cost of a request over that with tracing off. ci95: the bounds of its 95 % confidence interval."""

    ratio: float
    ci95: tuple[float, float]
    request_us: int
    rounds: int
    spans: int


def unchosen_us() -> float:
    """The CPU time of tracing for an unchosen request: it gets a trace context, which is passed to its engine."""
    no_queue = cast(SpanQueue, None)  # nothing is exported
    spans, headers = RequestSpans(Tracing(no_queue), Sampler(0.0)), {b"content-type": b"application/json"}
    arrivals = [Arrival(CHAT, headers) for _ in range(TIMED)]
    ended, header = Ended(200), b""
    began_s = time.thread_time()
    for arrival in arrivals:
        spans.begin(arrival)
        trace = arrival.trace
        assert trace is not None
        if trace.id is None and trace.attempt() is None:
            header = trace.header
        spans.end(arrival, "/v1/chat/completions", ended)
    took_us = (time.thread_time() - began_s) / TIMED * 1e6
    assert header.endswith(b"-00\r\n")
    return took_us


def of_one_percent(unchosen: float, every: Cost) -> dict[str, float | list[float]]:
    """The cost of tracing one request in a hundred. unchosen: an unchosen request's cost as a share of its CPU. every:
    the cost of tracing each request."""
    costs = every.ci95[0], every.ratio, every.ci95[1]
    low, middle, high = (round(1 + 0.99 * unchosen + 0.01 * (each - 1), 4) for each in costs)
    return {"ratio": middle, "ci95": [low, high]}


async def of_each(rounds: int, requests: int, load: Load) -> Cost:
    """Measure the cost with every request traced. load: sends a number of requests."""
    async with contextlib.AsyncExitStack() as stack:
        receiver = stack.enter_context(collector())
        state_file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "said"
        settings = {
            "SLIPSTREAM_TRACING__OTLP_ENDPOINT": receiver.url,
            "SLIPSTREAM_TRACING__SAMPLE_RATIO": "1.0",
            "PYTHONPATH": str(SWITCH),
            "SWITCHED_TRACING": str(state_file),
        }
        gateway = await stack.enter_async_context(side(HERE, settings))
        tracing = Sending(gateway, state_file)
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
        await asyncio.to_thread(receiver.wait_for, "place")
        sending_us = (tracing.sender_us() - sent_before_us) / (rounds * requests)
        spans = len(receiver.spans)
    off_us = statistics.median(cost_us["off"])
    making, low, high = compared(cost_us["off"], cost_us["on"])
    sending = sending_us / off_us
    print(f"each traced: {off_us:.0f} us a request without, {making - 1:+.2%} making, {sending:+.2%} sending spans")
    bounds = (round(low + sending, 4), round(high + sending, 4))
    return Cost(round(making + sending, 4), bounds, round(off_us), rounds, spans)


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--stream-rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=64)
    arguments = parser.parse_args()
    unchosen = unchosen_us()
    print(f"a request that is not chosen: {unchosen:.2f} us")
    line: dict[str, object] = {}
    loads: tuple[tuple[str, Load, int], ...] = (
        ("one_token", Side.ask, arguments.rounds),
        ("stream", streams, arguments.stream_rounds),
    )
    for name, load, rounds in loads:
        each = await of_each(rounds, arguments.requests, load)
        line |= {f"{name}_1_percent": of_one_percent(unchosen / each.request_us, each), f"{name}_100_percent": each}
    line |= {"unchosen_us": round(unchosen, 2), "requests": arguments.requests, "load": round(os.getloadavg()[0], 1)}
    print(msgspec.json.encode(line).decode())


if __name__ == "__main__":
    uvloop.run(main())
