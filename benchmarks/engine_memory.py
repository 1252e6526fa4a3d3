"""How much memory does an engine take: after its start, after chats, and after a run of evals?

    python -m benchmarks.engine_memory --model FILE.gguf [--chats 22] [--items 300] [--concurrency 8] [--check]

The engine has the settings that `up` gives the chat model that it fetches, and --model is that model's file:
`models/smollm2-135m-instruct.gguf` in a data folder of `up`. What is told is the resident set as `ps` tells it, in
MiB, the libraries' files included, which engines of one machine share. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from benchmarks.bounds import add_check, tell
from benchmarks.engine_process import TOKEN, engine_and_pid, session, stream
from evals.endpoint import Endpoint, answer_all
from evals.sandbox.isolation import Isolation
from evals.sandbox.sandbox import Sandbox
from evals.slices.catalogue import Catalogue
from slipstream.fetched_model import CACHED_BYTES, NAME, SLICES, TEMPERATURE, TOP_P

MAX_MIB = 700
CHAT_TOKENS = 128
QUESTIONS = (
    "What is photosynthesis?", "Name three rivers in Europe.", "What is a hash table?", "What is recursion?",
    "Write a Python function that adds two numbers.", "Write a short story about a cat.", "Give me ideas for dinner.",
)  # fmt: skip


def resident_mib(pid: int) -> float:
    """The resident set that `ps -o rss` reports, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the engine ended")


async def chat(url: str, count: int) -> None:
    """Send `count` chats, one after the other, with the default sampling."""
    async with session() as client:
        for number in range(count):
            question = f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"
            body = {"messages": [{"role": "user", "content": question}], "model": NAME, "max_tokens": CHAT_TOKENS}
            async for _ in stream(client, url, body):
                pass


async def evaluate(url: str, count: int, concurrency: int) -> int:
    """Send about `count` items of the slices that `up` evaluates; returns the number sent."""
    catalogue = Catalogue(None, Sandbox(Isolation.NAMESPACES))
    endpoint = Endpoint(f"{url}/v1", TOKEN, NAME, concurrency)
    sent = 0
    for name in SLICES:
        source = catalogue.to_score(name)
        items = [source.item(seed) for seed in range(count // len(SLICES))]
        sent += len(await answer_all(endpoint, items))
    return sent


def main(model: Path, chats: int, items: int, concurrency: int) -> list[str]:
    """Measure and print; returns the bounds that were missed."""
    config = {
        "model": str(model), "name": NAME, "temperature": TEMPERATURE, "top_p": TOP_P,
        "kv": {"cached_bytes": CACHED_BYTES},
    }  # fmt: skip
    found: dict[str, float] = {}

    def note(when: str) -> None:
        found[when] = round(resident_mib(pid), 1)
        print(f"{when:<30}{found[when]:8.1f} MiB", flush=True)

    with engine_and_pid(config) as (url, pid):
        note("start")
        asyncio.run(chat(url, chats))
        note(f"{chats} chats")
        sent = asyncio.run(evaluate(url, items, concurrency))
        note(f"{sent} items, {concurrency} at a time")
    print(json.dumps({"resident_mib": found, "most_mib": MAX_MIB}))
    return [f"{when}: {mib} MiB; at most {MAX_MIB}" for when, mib in found.items() if mib > MAX_MIB]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--chats", type=int, default=22)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--concurrency", type=int, default=8)
    add_check(parser)
    options = parser.parse_args()
    tell(main(options.model.resolve(), options.chats, options.items, options.concurrency), options.check)
