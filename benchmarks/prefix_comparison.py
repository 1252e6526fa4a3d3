"""What comparing a prompt with its organization's earlier ones costs a gateway's processor, and what a sample takes.

    python -m benchmarks.prefix_comparison [--rounds 300]

By `gateway.prefixes` in this process, as the gateway calls it behind an answer, without the write to PostgreSQL: a chat
of some 300 tokens, and one of some 130,000. Every prompt begins as the one before it and ends differently. Times are
CPU time of this thread, each the median of the rounds. Last line: JSON in microseconds and bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import msgspec

from gateway.prefixes.observer import Observed, PrefixObserver
from gateway.prefixes.template import PrefixDigests
from tests.gateway.prefixes.prompts import asked, message

LENGTHS = {"short": 300, "long": 130_000}
"""The prompts' lengths in tokens; each byte is a token."""
QUESTION_BYTES = 200


def prompts(tokens: int, rounds: int) -> list[Observed]:
    """Prompts that share all but the last question."""
    rules = "Answer from the handbook alone. " * (tokens // 32)
    system = message("system", rules[: max(tokens - QUESTION_BYTES, 1)])
    return [asked([system, message("user", f"{number:0{QUESTION_BYTES}}")]) for number in range(rounds)]


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    found = {}
    for name, tokens in LENGTHS.items():
        observer, took_ns, sample_bytes = PrefixObserver(PrefixDigests(b"secret")), [], 0
        for each in prompts(tokens, arguments.rounds):
            began_ns = time.thread_time_ns()
            sample = observer.observe(each)
            took_ns.append(time.thread_time_ns() - began_ns)
            sample_bytes = len(msgspec.msgpack.encode(sample))
        found[name] = {
            "tokens": each.prepared.prompt_tokens,
            "us": round(statistics.median(took_ns) / 1e3, 1),
            "sample_bytes": sample_bytes,
        }
        print(f"{name}: {found[name]}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
