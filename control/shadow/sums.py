"""Statistics of pairs by release, model and stage: each share or mean comes from sums over sessions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import asyncpg
import msgspec
from sqlalchemy import ColumnElement, Double, Float, and_, case, cast, func, select, true

from control.shadow.tables import shadow_pairs
from evals.statistics.interval import Estimate, Sums, mean, part, share
from gateway.shadow.pair import Outcome
from storage.rows import equal, fetch

_P = shadow_pairs.c
_COMPARED = _P.outcome == Outcome.COMPARED.value


class ShadowSums(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of one release, model and stage. release: empty if no release made the split. stage_share: the candidate's
    share of the sessions in that stage; 0 in the shadow stage, null if it was not recorded. Each share counts only
    pairs for which it is defined: JSON if it was requested, tool calls if either side made one, refusals of all
    compared pairs. baseline_failed: the customer's own engine failed. agreed: the part of the longer text before the
    first difference. length, ttft, tokens_per_s: the candidate's value divided by the baseline's, as geometric means.
    ttft: only of pairs that both found the same amount in their caches, within a tenth of the prompt."""

    release: str
    model: str
    stage_share: float | None
    pairs: int
    units: int
    first_at: datetime
    last_at: datetime
    failed: Estimate
    late: Estimate
    baseline_failed: Estimate
    same_text: Estimate
    same_text_greedy: Estimate
    agreed: Estimate
    same_finish: Estimate
    baseline_json_valid: Estimate
    candidate_json_valid: Estimate
    same_tool_calls: Estimate
    baseline_refused: Estimate
    candidate_refused: Estimate
    length: Estimate
    ttft: Estimate
    tokens_per_s: Estimate


class _Measure(NamedTuple):
    """A measure of pairs. value: of one pair; 1 or 0 for a share. among: the pairs for which it is defined."""

    told: Callable[[Sums], Estimate]
    value: ColumnElement[Any]
    among: ColumnElement[bool]


def _share_of(having: ColumnElement[bool], among: ColumnElement[bool] = _COMPARED) -> _Measure:
    return _Measure(share, case((having, 1.0), else_=0.0), among)


def _ratio(candidate: ColumnElement[Any], baseline: ColumnElement[Any], among: ColumnElement[bool]) -> _Measure:
    comparable = and_(_COMPARED, candidate > 0, baseline > 0, among)
    logarithm = func.ln(cast(candidate, Double)) - func.ln(cast(baseline, Double))
    return _Measure(partial(mean, logarithms=True), logarithm, comparable)


_LONGER = func.greatest(_P.baseline_characters, _P.candidate_characters, 1)
_ALIKE_CACHED = func.abs(_P.baseline_cached_tokens - _P.candidate_cached_tokens) * 10 <= _P.prompt_tokens
MEASURES: dict[str, _Measure] = {
    "failed": _share_of(_P.outcome == Outcome.FAILED.value, true()),
    "late": _share_of(_P.outcome == Outcome.LATE.value, true()),
    "baseline_failed": _share_of(_P.baseline_error_code.is_not(None), true()),
    "same_text": _share_of(_P.same_text),
    "same_text_greedy": _share_of(_P.same_text, and_(_COMPARED, _P.greedy)),
    "agreed": _Measure(part, func.coalesce(cast(_P.first_difference, Float) / _LONGER, 1.0), _COMPARED),
    "same_finish": _share_of(_P.baseline_finish.is_not_distinct_from(_P.candidate_finish)),
    "baseline_json_valid": _share_of(_P.baseline_json_valid, _P.baseline_json_valid.is_not(None)),
    "candidate_json_valid": _share_of(_P.candidate_json_valid, _P.candidate_json_valid.is_not(None)),
    "same_tool_calls": _share_of(_P.same_tool_calls, _P.same_tool_calls.is_not(None)),
    "baseline_refused": _share_of(_P.baseline_refused),
    "candidate_refused": _share_of(_P.candidate_refused),
    "length": _ratio(_P.candidate_characters, _P.baseline_characters, true()),
    "ttft": _ratio(_P.candidate_ttft_ms, _P.baseline_ttft_ms, _ALIKE_CACHED),
    "tokens_per_s": _ratio(_P.candidate_tokens_per_s, _P.baseline_tokens_per_s, true()),
}


async def sums(
    connection: asyncpg.Connection[Any], *, release: str | None = None, model: str | None = None
) -> list[ShadowSums]:
    """Sums of every release, model and stage with pairs, or of one release or model, the newest first."""
    per_unit = (
        select(
            _P.release,
            _P.model,
            _P.stage_share,
            func.count().label("pairs"),
            func.min(_P.recorded_at).label("first_at"),
            func.max(_P.recorded_at).label("last_at"),
            *(func.coalesce(func.sum(each.value).filter(each.among), 0.0).label(f"{name}_x") for name, each in _all()),
            *(cast(func.count().filter(each.among), Double).label(f"{name}_n") for name, each in _all()),
        )
        .where(equal(_P.release, release), equal(_P.model, model))
        .group_by(_P.release, _P.model, _P.stage_share, _P.unit)
        .subquery()
    )
    unit = per_unit.c
    columns: list[ColumnElement[Any]] = [
        cast(func.sum(unit.pairs), Double).label("pairs"),
        func.count().label("units"),
        func.min(unit.first_at).label("first_at"),
        func.max(unit.last_at).label("last_at"),
    ]
    for name in MEASURES:
        x, n = unit[f"{name}_x"], unit[f"{name}_n"]
        columns += [
            func.count().filter(n > 0).label(f"{name}_units"),
            *(
                func.sum(product).label(f"{name}_{label}")
                for label, product in (("n", n), ("x", x), ("xx", x * x), ("xn", x * n), ("nn", n * n))
            ),
        ]
    statement = (
        select(unit.release, unit.model, unit.stage_share, *columns)
        .group_by(unit.release, unit.model, unit.stage_share)
        .order_by(func.max(unit.last_at).desc(), unit.release, unit.model, unit.stage_share.desc())
    )
    return [_told(row) for row in await fetch(connection, statement)]


def _all() -> list[tuple[str, _Measure]]:
    return list(MEASURES.items())


def _told(row: asyncpg.Record) -> ShadowSums:
    found = {
        name: each.told(Sums(*(row[f"{name}_{part}"] for part in Sums.__struct_fields__)))
        for name, each in MEASURES.items()
    }
    return ShadowSums(
        release=row["release"],
        model=row["model"],
        stage_share=row["stage_share"],
        pairs=round(row["pairs"]),
        units=row["units"],
        first_at=row["first_at"],
        last_at=row["last_at"],
        **found,
    )
