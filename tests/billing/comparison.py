"""Engine's count beside the ledger's, attempt by attempt. Pure: records and rows in, verdict out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from contracts.usage import Outcome
from gateway.metering.journal.records import engine_request_id


class Counted(msgspec.Struct, frozen=True):
    engine_id: str
    prompt_tokens: int
    completion_tokens: int


class Row(msgspec.Struct, frozen=True):
    request_id: str
    attempt: int
    replica_id: str | None
    prompt_tokens: int
    completion_tokens: int
    outcome: str
    finish: str
    billed: bool
    model: str = ""


class Comparison(msgspec.Struct):
    """error_tokens is 0 and every list is empty when the ledger is right."""

    attempts: int = 0
    """That an engine has counted."""
    rows: int = 0
    error_tokens: int = 0
    """Sum over attempts of how far the ledger is off, either way, prompt and completion; a missing row counts whole."""
    missing: list[str] = []
    doubled: list[str] = []
    wrong: list[str] = []
    billed_twice: list[str] = []
    unseen: list[str] = []
    """Rows with tokens that no engine has counted."""
    finishes: Counter[str] = Counter()

    @property
    def right(self) -> bool:
        """Exactly one row for every attempt, with the engine's own counts."""
        return self.error_tokens == 0 and not (
            self.missing or self.doubled or self.wrong or self.billed_twice or self.unseen
        )


def compare(counted: Iterable[Counted], rows: Iterable[Row]) -> Comparison:
    """Every attempt the engines counted against every row of the ledger."""
    found: Mapping[str, list[Row]] = defaultdict(list)
    billed: Counter[str] = Counter()
    result = Comparison(missing=[], doubled=[], wrong=[], billed_twice=[], unseen=[], finishes=Counter())
    for row in rows:
        found[engine_request_id(row.request_id, row.attempt)].append(row)
        result.rows += 1
        result.finishes[f"{row.finish}, {row.outcome}"] += 1
        billed[row.request_id] += row.billed
    result.billed_twice = [request_id for request_id, times in billed.items() if times > 1]
    seen = set()
    for attempt in counted:
        result.attempts += 1
        seen.add(attempt.engine_id)
        own = found.get(attempt.engine_id, [])
        off = abs(sum(row.prompt_tokens for row in own) - attempt.prompt_tokens) + abs(
            sum(row.completion_tokens for row in own) - attempt.completion_tokens
        )
        result.error_tokens += off
        if not own:
            result.missing.append(attempt.engine_id)
        elif len(own) > 1:
            result.doubled.append(attempt.engine_id)
        elif off or own[0].outcome != Outcome.EXACT:
            result.wrong.append(attempt.engine_id)
    for engine_id, own in found.items():
        tokens = sum(row.prompt_tokens + row.completion_tokens for row in own)
        if engine_id not in seen and tokens:
            result.unseen.append(engine_id)
            result.error_tokens += tokens
        elif engine_id not in seen and len(own) > 1:
            result.doubled.append(engine_id)
    return result
