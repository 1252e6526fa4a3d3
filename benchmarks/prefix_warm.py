"""First token of a long prompt, cold and with its prefix in the cache, through HTTP.

    python -m benchmarks.prefix_warm [--model models/slipstream-code] [--prompt ids] [--tokens 1500] [--rounds 20]

Every round takes a prompt nobody has sent before: its first request is cold; `repeated` is the same prompt again,
`extended` the prompt with another end of some 8 tokens. `--prompt` says how it is sent: as token ids, as `text` (lines
of Python in random order), as a `chat` message with that text, or as the text before a gap (`fill`), so that
tokenising and templates count too. Last line: JSON with medians and the ratio cold / repeated; the goal is 20.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.engine_process import engine, session, stream
from engines.tokenizer.tokenizer import Tokenizer

SOURCES = ("router", "gateway", "benchmarks")
"""The folders whose lines the text prompts consist of."""
Body = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-code")
    parser.add_argument("--prompt", choices=("ids", "text", "chat", "fill"), default="ids")
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
    prompts = Prompts(arguments.prompt, Tokenizer.load(arguments.model))
    with engine(config) as url:
        print(json.dumps(asyncio.run(measure(url, prompts, arguments.tokens, arguments.rounds))))


class Prompts:
    """Makes prompts that are not sent before."""

    def __init__(self, kind: str, tokenizer: Tokenizer) -> None:
        """kind: the value of `--prompt`."""
        self._kind = kind
        self._tokenizer = tokenizer
        self._source = random.Random(1)
        files = [path for folder in SOURCES for path in sorted(Path(folder).rglob("*.py"))]
        self._lines = [line for path in files for line in path.read_text().splitlines(keepends=True)]

    def pair(self, tokens: int) -> tuple[Body, Body]:
        """Two bodies whose prompts of about `tokens` tokens differ only in their last eight."""
        ends = 8
        if self._kind == "ids":
            ids = [self._source.randrange(300, 2000) for _ in range(tokens + ends)]
            return {"prompt": ids[:tokens]}, {"prompt": ids[: tokens - ends] + ids[tokens:]}
        text = "".join(self._source.choices(self._lines, k=tokens // 4 + 16))
        ids = self._tokenizer.encode(text)[: tokens + ends]
        texts = (self._tokenizer.decode(part) for part in (ids[:tokens], ids[: tokens - ends] + ids[tokens:]))
        first, second = (self._body(part) for part in texts)
        return first, second

    def _body(self, text: str) -> Body:
        if self._kind == "chat":
            return {"messages": [{"role": "user", "content": text}]}
        return {"prompt": text, "suffix": "\n"} if self._kind == "fill" else {"prompt": text}


async def measure(url: str, prompts: Prompts, tokens: int, rounds: int) -> dict[str, float]:
    """Measure and print; returns the medians over the rounds."""
    times: dict[str, list[float]] = {"cold": [], "repeated": [], "extended": []}
    hits: dict[str, int] = {}
    async with session() as client:

        async def first_token_ms(prompt: Body) -> tuple[float, int]:
            started = time.perf_counter()
            first: float | None = None
            cached = 0
            body = {"model": "bench", **prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
            async for arrived, event in stream(client, url, body):
                first = first or arrived
                if event["usage"]:
                    cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert first is not None
            return (first - started) * 1e3, cached

        for _ in range(3):  # connections, memory, kernels
            await first_token_ms(prompts.pair(64)[0])
        for _ in range(rounds):
            prompt, extended = prompts.pair(tokens)
            for name, sent in (("cold", prompt), ("repeated", prompt), ("extended", extended)):
                elapsed_ms, hits[name] = await first_token_ms(sent)
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
