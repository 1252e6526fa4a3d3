"""Writes docs/reference/costs.md from the recorded numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.costs.kept import Cost, read

FILE = Path(__file__).parents[2] / "docs" / "reference" / "costs.md"
VERSION = "3.11"
"""The page shows the numbers of the oldest supported Python."""
OURS = frozenset({"contracts", "engines", "gateway", "router", "speculative", "storage", "telemetry"})
SPLIT = frozenset({"engines", "gateway", "router"})
"""Packages with a row for each of their folders."""
OPERATIONS = {
    "chat request": "`POST /v1/chat/completions`, streamed, 16 tokens, each in an event and a read of its own: from "
    "the bytes of the client's request to the last ones of its answer, including settlement and the journal's record",
    "whole answer": "the same without `stream`: the engine's events come in one read, and the client gets one body",
    "streamed token": "one more token of the streamed chat request, forwarded by the relay without decoding",
    "decoded token": "the same from an engine whose events the relay decodes, because their JSON has spaces",
    "completion": "`POST /v1/completions` with `suffix`, streamed, 16 tokens: a gap is laid out and filled",
    "refused request": "the chat request, refused with 429 by a limit of its key, as a client that does not back "
    "off sends them by the thousand",
    "lease": "the router's core grants a slot on one of eight replicas, and is notified of the first token and of the "
    "end",
    "engine step, batch 1": "one step of the embedded engine with one sequence that decodes: two layers, computed by "
    "PyTorch",
    "engine step, batch 8": "the same with eight sequences",
}
"""The description of each operation, by name."""
HEAD = """<!-- Written by `python -m tests.costs --page`; changes made here are lost. -->

# Costs

This page counts the operations of the hot paths instead of timing them. With Python 3.11 and the locked packages,
every machine, even a busy one, gets the same calls, and the same bytes to four digits.

- **calls**: Python functions that were entered; a coroutine counts again each time it resumes.
- **bytes**: bytes requested from Python's allocators, including memory freed since.
- **PyTorch**: operations that Python called.
- **reads, writes**: of each connection and of the journal's file. Each one is a system call.
- **turns**: turns of the event loop, each of which asks the kernel once what has arrived (`epoll_wait`). Each chunk
  arrives alone here; under load, a turn serves several requests.

Calls exclude loops inside a function, C code and other threads, except the journal's commit, which runs in the loop's
thread here. Bytes include those of C extensions. [Latency](../concepts/latency.md#what-a-request-costs) has CPU
times.

[A test](../../tests/costs/test_costs.py) counts them again. It fails if a number is more than 2 % above the recorded
one, and names the functions that are called more often. It also fails if a number is more than 2 % below, until the
lower one is recorded. `python -m tests.costs --write` records the operations that did not rise, by function in
`tests/costs/counts.json`, and writes this page. An operation that rose is recorded only with `--raise NAME`, so that
small rises cannot add up unseen. `python -m tests.costs` only compares.

A whole gateway runs in one process, without a network. These parts are real: the client's connection, the endpoint, a
key in memory, limits of an organization and a key, the journal, the router's client and the engine's connection.
Valkey, router, engine and client are stubs with prepared responses, and are not counted. Calls and bytes exclude the
event loop (asyncio's in place of uvloop). Nothing counts what is written to PostgreSQL later, or spans, because tracing
is off; syncs are counted but not performed. No timer fires, so reports to the router travel with the next request. A
token's cost is the difference between two streams, divided by the difference of their lengths.
"""


def page() -> str:
    """The page's whole text."""
    costs = read(VERSION)
    lines = [HEAD, "| operation | calls | bytes | PyTorch | |", "|---|--:|--:|--:|---|"]
    for name, what in OPERATIONS.items():
        cost = costs[name]
        torch = f"{cost.torch:,g}" if cost.torch else ""
        lines.append(f"| {name} | {_number(cost.calls)} | {cost.bytes:,.0f} | {torch} | {what} |")
    lines += ["", "## Calls by folder", ""]
    lines.append(f"| | {' | '.join(OPERATIONS)} |")
    lines.append(f"|---|{'--:|' * len(OPERATIONS)}")
    by_folder = {name: _by_folder(costs[name]) for name in OPERATIONS}
    folders = {folder for calls in by_folder.values() for folder in calls}
    for folder in sorted(folders, key=lambda folder: ([-by_folder[name][folder] for name in OPERATIONS], folder)):
        cells = [_share(by_folder[name][folder], costs[name].calls) for name in OPERATIONS]
        lines.append(f"| {folder} | {' | '.join(cells)} |")
    lines += ["", "## Reads, writes and turns", ""]
    moving = [name for name in OPERATIONS if costs[name].io]
    lines += [f"| | {' | '.join(moving)} |", f"|---|{'--:|' * len(moving)}"]
    for what in sorted({what for name in moving for what in costs[name].io}):
        cells = [_number(costs[name].io[what]) if what in costs[name].io else "" for name in moving]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    lines += ["", "## A streamed token's calls", "", "| function | calls |", "|---|--:|"]
    functions = costs["streamed token"].functions
    for function in sorted(functions, key=lambda function: (-functions[function], function)):
        lines.append(f"| `{function}` | {_number(functions[function])} |")
    return "\n".join(lines) + "\n"


def _by_folder(cost: Cost) -> Counter[str]:
    calls: Counter[str] = Counter()
    for function, number in cost.functions.items():
        calls[_folder(function.partition(":")[0])] += number  # type: ignore[assignment]  # averages
    return calls


def _folder(path: str) -> str:
    package, _, rest = path.partition("/")
    if package in SPLIT and "/" in rest:
        return f"`{package}/{rest.partition('/')[0]}/`"
    if package in OURS:
        return f"`{package}/`"
    return "Python's library" if package == "python" else "other packages"


def _share(calls: float, of: float) -> str:
    return f"{_number(round(calls, 2))} ({100 * calls / of:.0f} %)" if calls else ""


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.2f}"
