"""What the token ids of a prompt cost, new and when most of it has been sent before.

    python -m benchmarks.prompt_ids [--rounds 40] [--check]

In one process, CPU time, the median of the rounds. Conversations of 2,000 and 10,000 tokens for the shipped chat model:
new, and with one more turn, beside their template and their chain of digests, which are computed in full each time.
Files of three lengths for the shipped code model: new, and with one more character. Ratios are to the new one. Ends
with one JSON line; exit code 1 with `--check` if a typed file costs more than half of a new one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bounds import add_check
from contracts.prefix import chain_tokens, root
from engines.tokenizer.tokenizer import Tokenizer

ROOT = Path(__file__).parents[1]
FILE = ROOT / "gateway" / "limits" / "limiter.py"
SENTENCE = "The heron waits in the reeds, and the river is slow today. "
TENANT = "tenant"
MOST_TYPED = 0.5


def cpu_us(work: Callable[[], object], rounds: int) -> float:
    """The median CPU time of a call in all threads, in µs."""
    times = []
    for _ in range(rounds):
        began_ns = time.process_time_ns()
        work()
        times.append((time.process_time_ns() - began_ns) / 1_000)
    return statistics.median(times)


def conversation(tokenizer: Tokenizer, tokens: int) -> list[dict[str, Any]]:
    """Turns of some 230 tokens, the last of them the user's."""
    turns = max(1, round(tokens / tokenizer.count(SENTENCE * 12)))
    return [{"role": "assistant" if at % 2 else "user", "content": f"{at} {SENTENCE * 12}"} for at in range(turns | 1)]


def chat(tokens: int, rounds: int) -> dict[str, float]:
    """CPU µs of the parts of a conversation's ids."""
    tokenizer, number = Tokenizer.load(ROOT / "models" / "slipstream-chat"), itertools.count()
    messages = conversation(tokenizer, tokens)
    ids, template = tokenizer.chat_ids(messages, tenant=TENANT), tokenizer._chat_template
    assert template is not None

    def grown() -> object:
        return tokenizer.chat_ids([*messages[:-1], {"role": "user", "content": f"next {next(number)}"}], tenant=TENANT)

    return {
        "tokens": len(ids),
        "new": cpu_us(lambda: tokenizer.chat_ids(messages, tenant=f"tenant {next(number)}"), rounds),
        "grown": cpu_us(grown, rounds),
        "template": cpu_us(lambda: template.render(template.prepared(messages, tokenizer.bounds, None), None), rounds),
        "digests": cpu_us(lambda: chain_tokens(root("model"), ids), rounds),
    }


def file(characters: int, rounds: int) -> dict[str, float]:
    """CPU µs of a file's ids."""
    tokenizer, number = Tokenizer.load(ROOT / "models" / "slipstream-code"), itertools.count()
    text = FILE.read_text()[:characters]
    ends = itertools.cycle(range(len(text) - 40, len(text)))
    tokens = len(tokenizer.plain_ids(text, tenant=TENANT))
    return {
        "characters": len(text),
        "tokens": tokens,
        "whole": cpu_us(lambda: tokenizer.plain_ids(text), rounds),
        "new": cpu_us(lambda: tokenizer.plain_ids(text, tenant=f"tenant {next(number)}"), rounds),
        "typed": cpu_us(lambda: tokenizer.plain_ids(text[: next(ends)], tenant=TENANT), rounds),
    }


def main() -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    add_check(parser)
    arguments = parser.parse_args()
    chats = [chat(tokens, arguments.rounds) for tokens in (2_000, 10_000)]
    files = [file(characters, arguments.rounds) for characters in (3_000, 8_000, 14_000)]
    for each in chats:
        shares = ", ".join(f"{name} {each[name] / each['new']:.3f}" for name in ("grown", "template", "digests"))
        print(f"conversation of {each['tokens']:,.0f} tokens: new {each['new']:,.0f} µs; of it {shares}")
    for each in files:
        shares = ", ".join(f"{name} {each[name] / each['new']:.3f}" for name in ("whole", "typed"))
        print(f"file of {each['tokens']:,.0f} tokens: new {each['new']:,.0f} µs; of it {shares}")
    print(json.dumps({"chats": chats, "files": files}))
    return int(arguments.check and any(each["typed"] > MOST_TYPED * each["new"] for each in files))


if __name__ == "__main__":
    sys.exit(main())
