"""First token of a long prompt, cold and with its prefix in the cache, through HTTP.

    python -m benchmarks.prefix_warm [--model models/slipstream-code] [--tokens 1500] [--rounds 20]

Every round takes a prompt nobody has sent before: its first request is cold; `repeated` is the same prompt again,
`extended` the prompt with 8 other tokens at its end. Last line: JSON with medians and the ratio cold / repeated; the
goal is 20.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time

from benchmarks.engine_process import engine, session, stream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-code")
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--page-tokens", type=int, default=16)
    parser.add_argument("--dtype", default="auto")
    arguments = parser.parse_args()
    config = {
        "model": arguments.model,
        "name": "bench",
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "kv": {"page_tokens": arguments.page_tokens},
    }
    with engine(config) as url:
        print(json.dumps(asyncio.run(measure(url, arguments.tokens, arguments.rounds))))


async def measure(url: str, tokens: int, rounds: int) -> dict[str, float]:
    source = random.Random(1)
    times: dict[str, list[float]] = {"cold": [], "repeated": [], "extended": []}
    hits: dict[str, int] = {}
    async with session() as client:

        async def first_token_ms(prompt: list[int]) -> tuple[float, int]:
            started = time.perf_counter()
            first: float | None = None
            cached = 0
            body = {"model": "bench", "prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
            async for arrived, event in stream(client, url, body):
                first = first or arrived
                if event["usage"]:
                    cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert first is not None
            return (first - started) * 1e3, cached

        for _ in range(3):  # connections, memory, kernels
            await first_token_ms([source.randrange(300, 2000) for _ in range(64)])
        for _ in range(rounds):
            prompt = [source.randrange(300, 2000) for _ in range(tokens)]
            extended = prompt[:-8] + [source.randrange(300, 2000) for _ in range(8)]
            for name, ids in (("cold", prompt), ("repeated", prompt), ("extended", extended)):
                elapsed_ms, hits[name] = await first_token_ms(ids)
                times[name].append(elapsed_ms)
    result: dict[str, float] = {"tokens": tokens, "rounds": rounds}
    for name, values in times.items():
        print(f"{name:9} median {statistics.median(values):7.2f} ms  min {min(values):7.2f}  cached {hits[name]}")
        result[f"{name}_ms"] = round(statistics.median(values), 3)
    result["ratio"] = round(result["cold_ms"] / result["repeated_ms"], 1)
    result["ratio_extended"] = round(result["cold_ms"] / result["extended_ms"], 1)
    return result


if __name__ == "__main__":
    main()
