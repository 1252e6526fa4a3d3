"""What tracing costs a gateway: off, on with one request in a hundred sampled, and with all, asked in turn.

`python -m benchmarks.tracing_overhead [--rounds 18] [--requests 400]`. Three deployments of this tree stand in front of
fake engines, and a collector takes their spans. CPU is each gateway process' own, its exporting thread included, by
nanoseconds from /proc/PID/task/*/schedstat. The last line is JSON: each one's cost of a request over that of tracing
off, by the sums of all rounds, with half the width of the ratio's 95 % confidence interval, by the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import statistics

import msgspec
import uvloop

from benchmarks.gateway_in_turn import HERE, WARM_UP, Side, side
from tests.fakes.collector import collector

RATIOS = {"off": None, "1 %": "0.01", "100 %": "1"}
STUDENT_T = 2.1
"""95 %, for some 18 rounds."""


def compared(sides: dict[str, Side], name: str) -> tuple[float, float]:
    """Ratio of costs, and the half width of its interval. A round's sides are neighbours in time, so that what the
    machine did besides falls out of their ratio."""
    off, other = sides["off"].request_us, sides[name].request_us
    ratios = [mine / plain for mine, plain in zip(other, off, strict=True)]
    width = STUDENT_T * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return round(sum(other) / sum(off), 4), round(width, 4)


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=18)
    parser.add_argument("--requests", type=int, default=400)
    arguments = parser.parse_args()
    async with contextlib.AsyncExitStack() as stack:
        there = stack.enter_context(collector())
        sides: dict[str, Side] = {}
        for name, ratio in RATIOS.items():
            settings = {
                "SLIPSTREAM_TRACING__OTLP_ENDPOINT": there.url,
                "SLIPSTREAM_TRACING__SAMPLE_RATIO": ratio or "0",
            }
            sides[name] = await stack.enter_async_context(side(HERE, settings if ratio else {}))
        for each in sides.values():
            await each.ask(WARM_UP)
            each.request_us.clear()
        order = list(sides.values())
        for _ in range(arguments.rounds):
            order.append(order.pop(0))
            for each in order:
                await each.ask(arguments.requests)
        await asyncio.to_thread(there.wait_for, "place")
        spans = len(there.spans)
    for name, each in sides.items():
        low, high = min(each.request_us), max(each.request_us)
        print(f"{name:<6} {statistics.median(each.request_us):8.1f} us a request ({low:.0f} to {high:.0f})")
    sampled, every = compared(sides, "1 %"), compared(sides, "100 %")
    line = {
        "ratio_at_1_percent": sampled[0],
        "ratio_at_1_percent_ci95": sampled[1],
        "ratio_at_100_percent": every[0],
        "ratio_at_100_percent_ci95": every[1],
        "spans": spans,
        "rounds": arguments.rounds,
        "requests": arguments.requests,
        "load": round(os.getloadavg()[0], 1),
    }
    print(msgspec.json.encode(line).decode())


if __name__ == "__main__":
    uvloop.run(main())
