"""What a 2,000-token prompt does to streams that are already running: chunked under a budget, and whole.

    python -m benchmarks.chunked_prefill [--model models/slipstream-code] [--streams 8] [--prompts 10]

Engines with different `max_batch_tokens`, one after another, each with the same streams running; `off` is a budget that
takes the whole prompt in one step. Reported per engine: the gap between two tokens of a running stream without and
with a long prompt in the engine, the long prompt's own first token, and the budget's worth: the time that many tokens
of the prompt take, from the median of `off`. A running stream may wait for one step, so its longest gap should be
about its usual gap plus the budget's worth. Last line: JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import time

import aiohttp

from benchmarks.engine_process import engine, session, stream

OFF = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-code")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--budgets", type=int, nargs="+", default=[OFF, 512, 256, 128, 64])
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for budget in arguments.budgets:
        config = {"model": arguments.model, "name": "bench", "scheduler": {"max_batch_tokens": budget}}
        with engine(config) as url:
            found = asyncio.run(measure(url, arguments.tokens, arguments.streams, arguments.prompts))
        name = "off" if budget >= arguments.tokens else str(budget)
        if "off" in results:
            found["worth_ms"] = round(results["off"]["first_token_ms"] * budget / arguments.tokens, 2)
        results[name] = found
        print(f"{name:>5}  " + "  ".join(f"{key} {value:8.2f}" for key, value in found.items()))
    print(json.dumps({"tokens": arguments.tokens, "streams": arguments.streams, "budgets": results}))


async def measure(url: str, tokens: int, streams: int, prompts: int) -> dict[str, float]:
    source = random.Random(2)
    gaps: list[tuple[float, float]] = []
    """(end of the gap, its length), of all streams"""
    windows: list[tuple[float, float]] = []
    """when a long prompt was in the engine"""

    async def run(client: aiohttp.ClientSession) -> None:
        while True:
            # greedy, and never an end token: one that has no text makes no event, and the gap would be twice as long
            body = {
                "model": "bench",
                "prompt": [source.randrange(300, 2000) for _ in range(16)],
                "max_tokens": 2000,
                "temperature": 0,
                "ignore_eos": True,
                "logit_bias": {str(id_): -100 for id_ in range(16)},
            }
            before: float | None = None
            async for arrived, event in stream(client, url, body):
                if before is not None and event["choices"]:
                    gaps.append((arrived, arrived - before))
                before = arrived

    async with session() as client:
        tasks = [asyncio.create_task(run(client)) for _ in range(streams)]
        await asyncio.sleep(1.0)
        for _ in range(prompts):
            body = {
                "model": "bench",
                "prompt": [source.randrange(300, 2000) for _ in range(tokens)],
                "max_tokens": 1,
                "temperature": 0,
            }
            started = time.perf_counter()
            async for arrived, event in stream(client, url, body):
                if event["choices"]:
                    windows.append((started, arrived))
            await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    hit = [[gap * 1e3 for end, gap in gaps if end > start and end - gap < stop] for start, stop in windows]
    during = [gap_ms for window in hit for gap_ms in window]
    outside = [gap * 1e3 for end, gap in gaps if not any(end > start and end - gap < stop for start, stop in windows)]
    return {
        "usual_median_ms": round(statistics.median(outside), 2),
        "usual_p99_ms": round(statistics.quantiles(outside, n=100)[98], 2),
        "during_median_ms": round(statistics.median(during), 2),
        # of the longest gap per prompt: robust against a busy machine, where a maximum over all is not
        "longest_median_ms": round(statistics.median(max(window) for window in hit), 2),
        "first_token_ms": round(statistics.median(stop - start for start, stop in windows) * 1e3, 2),
    }


if __name__ == "__main__":
    main()
