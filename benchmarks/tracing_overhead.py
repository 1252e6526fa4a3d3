"""What tracing costs a gateway: off against one request in a hundred sampled, then off against all.

`python -m benchmarks.tracing_overhead [--rounds 200] [--requests 100]`. Two deployments of this tree at a time stand in
front of fake engines and are asked in turn; a collector takes their spans. CPU is each gateway process' own, by
nanoseconds from /proc/PID/task/*/schedstat, from one round's beginning to the next one's: spans are sent while the
other is asked too. The last line is JSON: the cost of a request over that of tracing off, as the median of the rounds'
ratios, with the bounds of its 95 % confidence interval.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics

import msgspec
import uvloop

from benchmarks.gateway_in_turn import HERE, WARM_UP, side
from benchmarks.paired_ratio import compared
from tests.fakes.collector import collector

Costs = dict[str, list[float]]


async def cost_us(ratio: str, rounds: int, requests: int) -> tuple[Costs, int]:
    """A request's CPU with tracing off and with this share sampled, by round; and how many spans were sent."""
    async with contextlib.AsyncExitStack() as stack:
        there = stack.enter_context(collector())
        settings = {"SLIPSTREAM_TRACING__OTLP_ENDPOINT": there.url, "SLIPSTREAM_TRACING__SAMPLE_RATIO": ratio}
        sides = {
            "off": await stack.enter_async_context(side(HERE, {})),
            "on": await stack.enter_async_context(side(HERE, settings)),
        }
        for each in sides.values():
            await each.ask(WARM_UP)
        costs: Costs = {name: [] for name in sides}
        order = list(sides.values())
        for _ in range(rounds):
            before = {name: each.cpu_us() for name, each in sides.items()}
            order.reverse()
            for each in order:
                await each.ask(requests)
            for name, each in sides.items():
                costs[name].append((each.cpu_us() - before[name]) / requests)
        await asyncio.to_thread(there.wait_for, "place")
        return costs, len(there.spans)


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="with one in a hundred sampled; a fifth of it with all")
    parser.add_argument("--requests", type=int, default=100)
    arguments = parser.parse_args()
    line: dict[str, object] = {}
    for percent, rounds in ((1, arguments.rounds), (100, max(1, arguments.rounds // 5))):
        costs, spans = await cost_us(str(percent / 100), rounds, arguments.requests)
        for name, each in costs.items():
            print(f"{percent:>3} %, {name:<3} {statistics.median(each):8.1f} us a request", flush=True)
        ratio, *interval = compared(costs["off"], costs["on"])
        line |= {f"ratio_at_{percent}_percent": ratio, f"ratio_at_{percent}_percent_ci95": interval}
        line |= {f"rounds_at_{percent}_percent": rounds, f"spans_at_{percent}_percent": spans}
    line |= {"requests": arguments.requests, "load": round(os.getloadavg()[0], 1)}
    print(msgspec.json.encode(line).decode())


if __name__ == "__main__":
    uvloop.run(main())
