"""What tracing costs a gateway: off, on with one request in a hundred sampled, and with all, asked in turn.

`python -m benchmarks.tracing_overhead [--rounds 120] [--requests 40]`. Three deployments of this tree stand in front of
fake engines, and a collector takes their spans. CPU is each gateway process' own, by nanoseconds from
/proc/PID/task/*/schedstat, from one round's beginning to the next one's: spans are sent while others are asked too. The
last line is JSON: the cost of a request over that of tracing off, as the median of the rounds' ratios, with the bounds
of its 95 % confidence interval.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics

import msgspec
import uvloop

from benchmarks.gateway_in_turn import HERE, WARM_UP, Side, side
from benchmarks.paired_ratio import compared
from tests.fakes.collector import collector

RATIOS = {"off": None, "1 %": "0.01", "100 %": "1"}


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--requests", type=int, default=40)
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
        costs_us: dict[str, list[float]] = {name: [] for name in sides}
        order = list(sides.values())
        for _ in range(arguments.rounds):
            before = {name: each.cpu_us() for name, each in sides.items()}
            order.append(order.pop(0))
            for each in order:
                await each.ask(arguments.requests)
            for name, each in sides.items():
                costs_us[name].append((each.cpu_us() - before[name]) / arguments.requests)
        await asyncio.to_thread(there.wait_for, "place")
        spans = len(there.spans)
    for name, costs in costs_us.items():
        print(f"{name:<6} {statistics.median(costs):8.1f} us a request ({min(costs):.0f} to {max(costs):.0f})")
    sampled, every = (compared(costs_us["off"], costs_us[name]) for name in ("1 %", "100 %"))
    line = {
        "ratio_at_1_percent": sampled[0],
        "ratio_at_1_percent_ci95": sampled[1:],
        "ratio_at_100_percent": every[0],
        "ratio_at_100_percent_ci95": every[1:],
        "spans": spans,
        "rounds": arguments.rounds,
        "requests": arguments.requests,
        "load": round(os.getloadavg()[0], 1),
    }
    print(msgspec.json.encode(line).decode())


if __name__ == "__main__":
    uvloop.run(main())
