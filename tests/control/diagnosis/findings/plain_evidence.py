"""Evidence from raw rows by the plainest arithmetic: PostgreSQL's is held against it, and rules are tested with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from statistics import mean, pvariance
from typing import Any

import msgspec

from contracts.fair_share import FAIR_SHARE
from contracts.generation import Tier
from contracts.length_class import length_class
from control.diagnosis.findings.evidence import (
    PARTS,
    WAITED_MS,
    Failure,
    OverShare,
    Part,
    Quantiles,
    Refusal,
    Refused,
    Slice,
    Target,
    Window,
)
from control.diagnosis.findings.measure import BEFORE_FIRST_TOKEN as PHASES
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

NUMBERS = {Measure.TTFT: Number.TTFT, Measure.TPOT: Number.TPOT, Measure.LONGEST_GAP: Number.LONGEST_GAP}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `gateway.request_traces`, as far as diagnosis reads it. at: the request's arrival."""

    at: datetime
    organization: str = "acme"
    tier: Tier = Tier.CHAT
    status: int = 200
    error_code: str | None = None
    rule: str | None = None
    """`counter of the level`."""
    over_share: bool | None = None
    service_class: str | None = None
    phases_ms: dict[str, float] = {}
    model: str | None = "model"
    pool: str | None = "pool"
    replica_id: str | None = "replica-0"
    attempts: int | None = 1
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reusable_tokens: int | None = None
    """Of `gateway.prefix_samples`; None: it has no sample."""
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    itl_max_ms: float | None = None
    client_stall_ms: float | None = None
    engine_queue_ms: float | None = None
    engine_prefill_ms: float | None = None
    engine_grammar_ms: float | None = None
    retractions: int | None = None


def window_of(rows: Iterable[Row], began: datetime, ended: datetime, objectives: Objectives | None = None) -> Window:
    by = objectives or Objectives()
    arrived = [row for row in rows if began <= row.at < ended]
    all_rows = [row for row in arrived if row.service_class != "offline"]
    answered = [row for row in all_rows if row.status == 200 and row.error_code is None]
    limited = [row for row in all_rows if row.status == 429 or row.over_share]
    refused = Counter(
        (row.error_code or "", FAIR_SHARE if row.over_share else row.rule or row.error_code or "") for row in limited
    )
    failed = Counter(row.error_code or "" for row in all_rows if _failed(row) and not row.over_share)
    seconds = Counter(int((row.at - began).total_seconds()) for row in all_rows)
    counts = [seconds[second] for second in range(int((ended - began).total_seconds()))]
    return Window(
        began=began,
        ended=ended,
        requests=len(all_rows),
        retried=sum((row.attempts or 0) > 1 and not _failed(row) for row in all_rows),
        dispersion=pvariance(counts) / mean(counts) if len(counts) > 1 and any(counts) else None,
        refusals=tuple(Refusal(code, rule, count) for (code, rule), count in sorted(refused.items())),
        refused=tuple(
            Refused(name, None, count)
            for name, count in sorted(
                Counter(row.organization for row in limited).items(),
                key=lambda item: (-item[1], item[0]),
            )
        ),
        over_shares=tuple(
            OverShare(name, sum(row.organization == name for row in all_rows), count)
            for name, count in sorted(
                Counter(row.organization for row in all_rows if row.over_share).items(),
                key=lambda item: (-item[1], item[0]),
            )
        ),
        failures=tuple(Failure(code, count) for code, count in sorted(failed.items())),
        targets=_targets(all_rows),
        tiers=_slices(by, answered, lambda row: (row.tier,), ("tier",)),
        classes=_slices(
            by,
            [row for row in answered if row.prompt_tokens is not None],
            lambda row: (row.tier, length_class(row.prompt_tokens or 0)),
            ("tier", "length"),
        ),
        replicas=_slices(
            by,
            [row for row in answered if row.replica_id is not None],
            lambda row: (row.tier, row.pool, row.replica_id),
            ("tier", "pool", "replica_id"),
        ),
        tenants=tuple(
            _compared(each, arrived)
            for each in _slices(by, answered, lambda row: (row.organization,), ("organization",))
        ),
        parts=_parts(answered, began, ended),
    )


def _targets(all_rows: list[Row]) -> tuple[Target, ...]:
    of: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in all_rows:
        if row.model is not None:
            of[row.model, row.pool or ""].append(row)
    return tuple(
        Target(
            model=model,
            pool=pool,
            requests=len(theirs),
            failures=tuple(
                Failure(code, count)
                for code, count in sorted(
                    Counter(row.error_code or "" for row in theirs if _failed(row) and not row.over_share).items()
                )
                if code
            ),
        )
        for (model, pool), theirs in sorted(of.items())
    )


def _failed(row: Row) -> bool:
    broke_off = row.status == 200 and row.error_code not in (None, "client_gone", "superseded")
    return row.status >= 500 or broke_off


def measures_of(row: Row) -> dict[Measure, float | None]:
    phases = row.phases_ms
    engine, waited, prefill = phases.get("engine"), row.engine_queue_ms, row.engine_prefill_ms
    split = waited is not None and prefill is not None
    return {
        Measure.TTFT: row.ttft_ms,
        Measure.TPOT: row.tpot_ms,
        Measure.LONGEST_GAP: row.itl_max_ms,
        Measure.AUTH: phases.get("auth"),
        Measure.LIMIT: phases.get("limit"),
        Measure.ROUTE: phases.get("route"),
        Measure.WAIT: None if "queue" not in phases else phases["queue"] + (waited or 0.0),
        Measure.PREFILL: prefill,
        Measure.ENGINE_UNSPLIT: None if split else engine,
        Measure.GRAMMAR: row.engine_grammar_ms,
        Measure.ENGINE_LINK: max(engine - waited - prefill - (row.engine_grammar_ms or 0.0), 0.0)
        if engine is not None and waited is not None and prefill is not None
        else None,
        Measure.FIRST_TOKEN: phases.get("first_token"),
        Measure.STREAM: phases.get("stream"),
        Measure.CLIENT_STALL: row.client_stall_ms,
        Measure.PROMPT_TOKENS: row.prompt_tokens,
        Measure.CACHED_TOKENS: row.cached_tokens,
        Measure.COMPLETION_TOKENS: row.completion_tokens,
    }


def quantiles_of(values: list[float]) -> Quantiles:
    """Interpolated between neighbours, as `percentile_cont` does."""
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return Quantiles(len(ordered), at(0.5), at(0.9), at(0.95), at(0.99))


def _compared(one: Slice, rows: list[Row]) -> Slice:
    sampled = [row for row in rows if row.organization == one.organization and row.reusable_tokens is not None]
    return msgspec.structs.replace(
        one,
        sampled_tokens=sum(row.prompt_tokens or 0 for row in sampled),
        reusable_tokens=sum(row.reusable_tokens or 0 for row in sampled),
    )


def _slices(
    by: Objectives, rows: list[Row], key: Callable[[Row], tuple[Hashable, ...]], names: tuple[str, ...]
) -> tuple[Slice, ...]:
    grouped: dict[tuple[Hashable, ...], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[key(row)].append(row)
    return tuple(
        _slice(by, members, **dict(zip(names, labels, strict=True)))
        for labels, members in sorted(grouped.items(), key=lambda each: str(each[0]))
    )


def _slice(by: Objectives, rows: list[Row], **labels: Any) -> Slice:
    values: dict[Measure, list[float]] = defaultdict(list)
    for row in rows:
        for measure, value in measures_of(row).items():
            if value is not None:
                values[measure].append(value)
    late = [row for row in rows if _beyond(by, row, Measure.TTFT)]
    phases = {phase: [value for row in late if (value := measures_of(row)[phase]) is not None] for phase in PHASES}
    told = [row for row in rows if row.prompt_tokens is not None and row.cached_tokens is not None]
    return Slice(
        requests=len(rows),
        measures={measure: quantiles_of(values[measure]) for measure in Measure if values[measure]},
        beyond={measure: sum(_beyond(by, row, measure) for row in rows) for measure in NUMBERS},
        late_ms={phase: mean(found) for phase, found in phases.items() if found},
        waited=sum((measures_of(row)[Measure.WAIT] or 0.0) >= WAITED_MS for row in rows),
        prompt_tokens=sum(row.prompt_tokens or 0 for row in told),
        cached_tokens=sum(row.cached_tokens or 0 for row in told),
        retractions_known=sum(row.retractions is not None for row in rows),
        retracted=sum((row.retractions or 0) > 0 for row in rows),
        **labels,
    )


def _beyond(by: Objectives, row: Row, measure: Measure) -> bool:
    promised_ms = by.promised_ms(row.tier, length_class(row.prompt_tokens or 0), NUMBERS[measure])
    value = measures_of(row)[measure]
    return value is not None and promised_ms is not None and value > promised_ms


def _parts(rows: list[Row], began: datetime, ended: datetime) -> tuple[Part, ...]:
    grouped: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row.prompt_tokens is not None and row.cached_tokens is not None:
            number = int((row.at - began) * PARTS / (ended - began))
            grouped[row.organization, number].append(row)
    return tuple(
        Part(
            organization,
            number,
            len(members),
            sum(row.prompt_tokens or 0 for row in members),
            sum(row.cached_tokens or 0 for row in members),
        )
        for (organization, number), members in sorted(grouped.items())
    )
