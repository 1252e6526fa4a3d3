"""The costs in `counts.json`, one set for each version of Python, and the differences from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("counts.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TOLERANCE = 0.02
SAME = 0.001
"""The relative difference of bytes between two runs of the same code."""
BYTES = "bytes allocated"
SHOWN = 12
"""How many functions a failure names."""
COMMAND = "python -m tests.costs --write"


class Cost(msgspec.Struct, frozen=True):
    """One operation's cost. functions: calls by `file:name`; an average may be fractional. bytes: bytes requested from
    Python's allocators. torch: PyTorch's operations that those functions called. io: reads and writes by peer, and
    turns of the loop."""

    functions: dict[str, float]
    bytes: float
    torch: float = 0
    io: dict[str, float] = {}

    @property
    def calls(self) -> float:
        """The calls of all functions together."""
        return round(sum(self.functions.values()), 2)

    def minus(self, other: Cost) -> Cost:
        return Cost(
            _less(self.functions, other.functions),
            self.bytes - other.bytes,
            self.torch - other.torch,
            _less(self.io, other.io),
        )

    def divided(self, by: int) -> Cost:
        return Cost(_split(self.functions, by), self.bytes / by, self.torch / by, _split(self.io, by))

    def kept(self) -> Cost:
        """The cost as the file has it: bytes have four digits, because they differ slightly from run to run."""
        digits = 4 - len(str(int(self.bytes)))
        return Cost(
            dict(sorted(self.functions.items())),
            int(round(self.bytes, digits)),
            _rounded(self.torch),
            dict(sorted(self.io.items())),
        )


def _less(numbers: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    return {name: numbers.get(name, 0) - others.get(name, 0) for name in numbers.keys() | others.keys()}


def _split(numbers: dict[str, float], by: int) -> dict[str, float]:
    parts = {name: _rounded(number / by) for name, number in numbers.items()}
    return {name: part for name, part in parts.items() if part}


def _rounded(number: float) -> float:
    rounded = round(number, 3)
    return int(rounded) if rounded == int(rounded) else rounded


def read(version: str = VERSION) -> dict[str, Cost]:
    """The recorded costs by operation; empty for a version of Python without numbers."""
    return _kept().get(version, {})


def write(costs: dict[str, Cost], raised: Collection[str] = ()) -> list[str]:
    """Record each cost that did not rise, for this version of Python. raised: operations that may have risen. Returns
    the other operations that rose: they keep their numbers, so that many small rises add up to one that fails."""
    kept = _kept()
    before = kept.get(VERSION, {})
    rose = [name for name in costs.keys() & before.keys() - set(raised) if _rose(before[name], costs[name])]
    kept[VERSION] = {
        name: before[name] if name in rose else _settled(before.get(name), cost.kept()) for name, cost in costs.items()
    }
    FILE.write_text(_text(kept))
    return sorted(rose)


def _kept() -> dict[str, dict[str, Cost]]:
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, dict[str, Cost]]) if FILE.exists() else {}


def _rose(before: Cost, now: Cost) -> bool:
    return (
        now.calls > before.calls
        or now.torch > before.torch
        or now.bytes > before.bytes * (1 + SAME)
        or any(number > before.io.get(name, 0) for name, number in now.io.items())
    )


def _settled(before: Cost | None, now: Cost) -> Cost:
    """The earlier cost, unless more than the last digit of its bytes differs."""
    same = before is not None and (before.functions, before.torch, before.io) == (now.functions, now.torch, now.io)
    return before if before is not None and same and abs(before.bytes / now.bytes - 1) < SAME else now


def _text(kept: dict[str, dict[str, Cost]]) -> str:
    """JSON with a line for each source file, so that a diff is readable."""
    versions = []
    for version, costs in sorted(kept.items()):
        operations = []
        for name, cost in costs.items():
            by_file: dict[str, list[str]] = {}
            for function, calls in cost.functions.items():
                by_file.setdefault(function.partition(":")[0], []).append(f"{json.dumps(function)}: {calls:g}")
            functions = ",\n".join(f"        {', '.join(entries)}" for entries in by_file.values())
            moved = json.dumps({name: _rounded(count) for name, count in cost.io.items()})
            numbers = f'"bytes": {cost.bytes:.0f}, "torch": {cost.torch:g}, "io": {moved}'
            operations.append(
                f'    {json.dumps(name)}: {{\n      {numbers},\n      "functions": {{\n{functions}\n      }}\n    }}'
            )
        versions.append(f"  {json.dumps(version)}: {{\n" + ",\n".join(operations) + "\n  }")
    return "{\n" + ",\n".join(versions) + "\n}\n"


def differences(kept: dict[str, Cost], counted: dict[str, Cost]) -> list[str]:
    """One text for each number that is not within 2 % of the recorded one."""
    texts = [f"{name}: no cost is recorded; record it: {COMMAND}" for name in sorted(counted - kept.keys())]
    texts += [
        f"{name}: a cost is recorded, and nothing counts it; drop it: {COMMAND}"
        for name in sorted(kept.keys() - counted)
    ]
    for name in [name for name in kept if name in counted]:
        before, now = kept[name], counted[name]
        for what, old, new in (
            ("calls of Python functions", before.calls, now.calls),
            (BYTES, before.bytes, now.bytes),
            ("operations of PyTorch", before.torch, now.torch),
            *((what, before.io.get(what, 0), now.io.get(what, 0)) for what in sorted(before.io.keys() | now.io.keys())),
        ):
            change = f"{_number(new)} {what}, recorded {_number(old)} ({_percent(old, new)})"
            if new > old * (1 + TOLERANCE):
                advice = "Remove the extra cost, or justify it in the commit and record the new number"
                texts.append(f"{name}: {change}. {advice}: {COMMAND} --raise '{name}'\n{_grown(before, now, what)}")
            elif new < old * (1 - TOLERANCE):
                texts.append(f"{name}: only {change}. Record the lower number in the same commit: {COMMAND}")
    return texts


def _grown(before: Cost, now: Cost, what: str) -> str:
    """The functions that are called more often, the largest increase first. what: the number that grew."""
    more = {
        name: difference
        for name, calls in now.functions.items()
        if (difference := round(calls - before.functions.get(name, 0), 3)) > 0
    }
    if not more:
        allocate = "; some allocate more" if what == BYTES else ""
        return f"  No function is called more often{allocate}."
    lines = [
        f"  {_number(more[name])} more call{'s' * (more[name] != 1)} of {name}"
        for name in sorted(more, key=lambda name: (-more[name], name))
    ]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"  and {len(lines) - SHOWN} other functions"]
    return "\n".join(lines)


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 1_000 or number == int(number) else f"{number:,.2f}"


def _percent(old: float, new: float) -> str:
    return f"{(new / old - 1) * 100:+.1f} %" if old else "none before"
