"""Reads a window's measurements, which PostgreSQL aggregates from `gateway.request_traces`.

Counts cover all requests with a waiting client (counts.py). Distributions cover the requests that an engine answered
completely. Beyond `MAX` of these, a sample by the random end of the ids is enough, so a busy week takes no longer than
a quiet hour. Only committed rows are visible; a trace follows its response by about a second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from contracts.dated_request_id import first_at
from contracts.generation import Tier
from contracts.length_class import LONG_TOKENS, MEDIUM_TOKENS, LengthClass
from control.diagnosis.counts import ARRIVED_MS, ASKED, Counts, RefusedOf, counts_of
from control.diagnosis.findings.evidence import (
    PARTS,
    WAITED_MS,
    EnginePage,
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
from control.diagnosis.findings.measure import BEFORE_FIRST_TOKEN, Measure
from control.diagnosis.findings.objectives import Objectives
from storage.rows import CUSTOM_PLANS

MAX = 3_000
"""The usual limit of a sample for distributions, which takes PostgreSQL about 50 ms; a sample has at least 750."""
SEARCHED = 12_000
"""Up to this many answered requests, PostgreSQL scans all of them for the sample."""
EVERY = "g"
"""The bound of no sample: it sorts after all four digits."""
SHARES = ("1000", "0400", "0100", "0040")
"""Bounds on the last four digits for more requests, from a sixteenth down; each has an index (migration 0037)."""
QUANTILES = "ARRAY[0.5, 0.9, 0.95, 0.99]"
SETS = {
    "tiers": ("tier",),
    "classes": ("tier", "length"),
    "replicas": ("tier", "pool", "replica_id"),
    "tenants": ("organization_id",),
}
"""The columns by which each field of `Window` is grouped."""
GROUPED = ("tier", "length", "pool", "replica_id", "organization_id")
_IS_SPLIT = "engine_queue_ms IS NOT NULL AND engine_prefill_ms IS NOT NULL"


def _phase(name: str) -> str:
    return f"(phases_ms->>'{name}')::float8"


MEASURED: Mapping[Measure, str] = {
    Measure.TTFT: "ttft_ms",
    Measure.TPOT: "tpot_ms",
    Measure.LONGEST_GAP: "itl_max_ms",
    Measure.AUTH: _phase("auth"),
    Measure.LIMIT: _phase("limit"),
    Measure.ROUTE: _phase("route"),
    Measure.WAIT: f"{_phase('queue')} + coalesce(engine_queue_ms, 0)",
    Measure.PREFILL: "engine_prefill_ms",
    Measure.ENGINE_UNSPLIT: f"CASE WHEN NOT ({_IS_SPLIT}) THEN {_phase('engine')} END",
    Measure.GRAMMAR: "engine_grammar_ms",
    Measure.ENGINE_LINK: (
        f"CASE WHEN {_IS_SPLIT} THEN greatest({_phase('engine')} - engine_queue_ms - engine_prefill_ms"
        " - coalesce(engine_grammar_ms, 0), 0) END"
    ),
    Measure.FIRST_TOKEN: _phase("first_token"),
    Measure.STREAM: _phase("stream"),
    Measure.CLIENT_STALL: "client_stall_ms",
    Measure.PROMPT_TOKENS: "prompt_tokens::float8",
    Measure.CACHED_TOKENS: "cached_tokens::float8",
    Measure.COMPLETION_TOKENS: "completion_tokens::float8",
}
"""Each measure as an SQL expression of a request's row; null if unknown."""
ANSWERED = f"{ASKED} AND status = 200 AND error_code IS NULL AND served_from IS NULL AND tier IS NOT NULL"
PARTS_OF = f"""
SELECT organization_id, (({ARRIVED_MS} - $6) * $7 / $8)::int AS number, count(*) AS requests,
       sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens
  {ANSWERED} AND right(request_id, 4) < $5 AND prompt_tokens IS NOT NULL AND cached_tokens IS NOT NULL
 GROUP BY 1, 2 ORDER BY 1, 2
"""
# The gateway's comparison of prompts with earlier ones (gateway/prefixes), if it is on; includes offline requests,
# which share caches with the others.
REUSABLE = """
SELECT organization_id, sum(prompt_tokens)::bigint AS sampled_tokens, sum(reusable_tokens)::bigint AS reusable_tokens
  FROM gateway.prefix_samples
 WHERE request_id >= $1 AND request_id < $2 AND ($3::uuid IS NULL OR organization_id = $3)
   AND ($4::text IS NULL OR tier = $4) AND right(request_id, 4) < $5
 GROUP BY 1
"""
# Engines' own counters, over all their requests. A restart between two samples leaves no difference to compute.
PAGES = """
SELECT pool, replica_id, sum(queue_s - queue_s_before) AS queue_s, sum(prefill_s - prefill_s_before) AS prefill_s,
       sum(requests - requests_before)::bigint AS requests,
       sum(retractions - retractions_before)::bigint AS retractions
  FROM (SELECT *, lag(queue_s) OVER each AS queue_s_before, lag(prefill_s) OVER each AS prefill_s_before,
               lag(requests) OVER each AS requests_before,
               lag(retractions) OVER each AS retractions_before
          FROM gateway.engine_counts WHERE sampled_at >= $1 AND sampled_at < $2
        WINDOW each AS (PARTITION BY pool, replica_id ORDER BY sampled_at)) AS sample
 WHERE continues AND queue_s IS NOT NULL AND queue_s_before IS NOT NULL
 GROUP BY pool, replica_id ORDER BY pool, replica_id
"""
NAMES = "SELECT id, name FROM gateway.organizations WHERE id = ANY($1)"
_KNOWN = "prompt_tokens IS NOT NULL AND cached_tokens IS NOT NULL"
_VALUES = ", ".join(f"{expression} AS value_{measure}" for measure, expression in MEASURED.items())
_COMPUTED = ", ".join(
    f"count(value_{measure}) AS n_{measure}, percentile_cont({QUANTILES}) WITHIN GROUP (ORDER BY value_{measure})"
    f" AS {measure}"
    for measure in MEASURED
)
PROMISED = {Measure.TTFT: "ttft_ms", Measure.TPOT: "tpot_ms", Measure.LONGEST_GAP: "itl_max_ms"}
"""The objective's figure for each measure. Requests of unknown length count as short, as in control/slo/judged.py."""
_BEYOND = ", ".join(
    f"count(*) FILTER (WHERE value_{measure} > promised_{measure}) AS beyond_{measure}" for measure in PROMISED
)
_LATE = ", ".join(
    f"avg(value_{phase}) FILTER (WHERE value_{Measure.TTFT} > promised_{Measure.TTFT}) AS late_{phase}"
    for phase in BEFORE_FIRST_TOKEN
)
SLICES = f"""
WITH traced AS MATERIALIZED (
    SELECT tier, pool, replica_id, organization_id, prompt_tokens, cached_tokens, retractions,
           CASE WHEN prompt_tokens < {MEDIUM_TOKENS} THEN 'short' WHEN prompt_tokens < {LONG_TOKENS} THEN 'medium'
                WHEN prompt_tokens IS NOT NULL THEN 'long' END AS length, {_VALUES}
      {ANSWERED} AND right(request_id, 4) < $5),
judged AS (
    SELECT traced.*, {", ".join(f"promised_{measure}" for measure in PROMISED)}
      FROM traced LEFT JOIN unnest($6::text[], $7::text[], $8::float8[], $9::float8[], $10::float8[])
                  AS objective (of_tier, of_length, {", ".join(f"promised_{measure}" for measure in PROMISED)})
             ON of_tier = tier AND of_length = coalesce(length, 'short'))
SELECT grouping({", ".join(GROUPED)}) AS absent, {", ".join(GROUPED)}, count(*) AS requests,
       count(*) FILTER (WHERE value_{Measure.WAIT} >= {WAITED_MS}) AS waited,
       coalesce(sum(prompt_tokens) FILTER (WHERE {_KNOWN}), 0) AS prompt_tokens_sum,
       coalesce(sum(cached_tokens) FILTER (WHERE {_KNOWN}), 0) AS cached_tokens_sum,
       count(retractions) AS retractions_known, count(*) FILTER (WHERE retractions > 0) AS retracted, {_COMPUTED},
       {_BEYOND}, {_LATE}
  FROM judged
 GROUP BY GROUPING SETS ({", ".join(f"({', '.join(names)})" for names in SETS.values())})
 ORDER BY {", ".join(GROUPED)}
"""  # noqa: S608


async def read_window(
    connection: asyncpg.Connection[Any],
    began: datetime,
    ended: datetime,
    organization_id: UUID | None = None,
    tier: Tier | None = None,
    objectives: Objectives | None = None,
) -> Window:
    """The window, by arrival, of one organization or all and one tier or all. objectives: None for the defaults.

    Engines' counters cover all organizations' requests, so a single organization's window leaves them out.
    """
    promised = (objectives or Objectives()).all
    scope = (first_at(began.timestamp()), first_at(ended.timestamp()), organization_id, tier)
    began_ms, span_ms = int(began.timestamp() * 1000), int((ended - began).total_seconds() * 1000)
    await connection.execute(CUSTOM_PLANS)
    counted = await counts_of(connection, began, ended, organization_id, tier)
    below = _below(counted.answered)
    figures = [[getattr(each, name) for each in promised] for name in ("tier", "length", *PROMISED.values())]
    slices = await connection.fetch(drawn(SLICES, below), *scope, below, *figures)
    parts = await connection.fetch(drawn(PARTS_OF, below), *scope, below, began_ms, PARTS, span_ms)
    compared = await connection.fetch(drawn(REUSABLE, below), *scope, below)
    reusable = {row["organization_id"]: row for row in compared}
    pages = await connection.fetch(PAGES, began, ended) if organization_id is None else []
    names = await organization_names(
        connection,
        {row["organization_id"] for row in [*slices, *parts]}
        | {each.organization_id for each in counted.refused}
        | set(counted.over_share_of),
    )
    return Window(
        began=began,
        ended=ended,
        requests=counted.requests,
        retried=counted.retried,
        dispersion=_dispersion(counted.requests, counted.squares, span_ms // 1000),
        refusals=tuple(Refusal(*key, count) for key, count in sorted(counted.refusals.items())),
        refused=_refused(counted.refused, names),
        over_shares=_over_shares(counted, names),
        failures=tuple(Failure(*each) for each in sorted(counted.failures.items())),
        targets=_targets(counted),
        sampled_share=None if below == EVERY else int(below, 16) / 0x10000,
        parts=tuple(Part(names[row[0]], *list(row)[1:]) for row in parts),
        pages=tuple(EnginePage(**row) for row in pages),
        **{field: _slices(slices, by, names, reusable) for field, by in SETS.items()},
    )


def _refused(refused: Iterable[RefusedOf], names: Mapping[UUID, str]) -> tuple[Refused, ...]:
    found = [Refused(names[each.organization_id], each.key, each.requests) for each in refused]
    return tuple(sorted(found, key=lambda each: (-each.count, each.label)))


def _over_shares(counted: Counts, names: Mapping[UUID, str]) -> tuple[OverShare, ...]:
    found = [OverShare(names[id_], counted.requests_of[id_], count) for id_, count in counted.over_share_of.items()]
    return tuple(sorted(found, key=lambda each: (-each.refused, each.organization)))


def _targets(counted: Counts) -> tuple[Target, ...]:
    failures_of: dict[tuple[str, str], list[Failure]] = {}
    requests: Counter[tuple[str, str]] = Counter()
    for (model, pool, code), count in sorted(counted.targets.items()):
        requests[model, pool] += count
        failures_of.setdefault((model, pool), []).extend([Failure(code, count)] if code else [])
    return tuple(
        Target(model=model, pool=pool, requests=requests[model, pool], failures=tuple(failures))
        for (model, pool), failures in failures_of.items()
    )


def drawn(statement: str, below: str) -> str:
    """The statement with the condition of the share's partial index, if there is one, as a literal: PostgreSQL matches
    no parameter to it."""
    share = "right(request_id, 4) < $5"
    return statement.replace(share, f"{share} AND right(request_id, 4) < '{below}'") if below in SHARES else statement


def _below(answered: int) -> str:
    """The sample's bound on the last four digits of ids."""
    if answered <= MAX:
        return EVERY
    if answered <= SEARCHED:
        return f"{math.ceil(0x10000 * MAX / answered):04x}"
    few_enough = (share for share in SHARES if answered * int(share, 16) / 0x10000 <= MAX)
    return next(few_enough, SHARES[-1])


def _dispersion(requests: int, squares: float, seconds: int) -> float | None:
    """Variance over mean of the requests per second; None for less than two seconds or without requests."""
    if seconds < 2 or not requests:
        return None
    mean = requests / seconds
    return (squares / seconds - mean * mean) / mean


def _slices(
    rows: list[asyncpg.Record],
    by: tuple[str, ...],
    names: Mapping[UUID, str],
    reusable: Mapping[UUID, asyncpg.Record],
) -> tuple[Slice, ...]:
    absent = sum(1 << bit for bit, name in enumerate(reversed(GROUPED)) if name not in by)
    chosen = [row for row in rows if row["absent"] == absent and all(row[name] is not None for name in by)]
    return tuple(_slice(row, names, reusable) for row in chosen)


def _slice(row: asyncpg.Record, names: Mapping[UUID, str], reusable: Mapping[UUID, asyncpg.Record]) -> Slice:
    compared = reusable.get(row["organization_id"])
    return Slice(
        requests=row["requests"],
        tier=None if row["tier"] is None else Tier(row["tier"]),
        length=None if row["length"] is None else LengthClass(row["length"]),
        pool=row["pool"],
        replica_id=row["replica_id"],
        organization=None if row["organization_id"] is None else names[row["organization_id"]],
        measures={measure: Quantiles(row[f"n_{measure}"], *row[measure]) for measure in Measure if row[measure]},
        beyond={measure: row[f"beyond_{measure}"] for measure in PROMISED},
        late_ms={phase: row[f"late_{phase}"] for phase in BEFORE_FIRST_TOKEN if row[f"late_{phase}"] is not None},
        waited=row["waited"],
        prompt_tokens=row["prompt_tokens_sum"],
        cached_tokens=row["cached_tokens_sum"],
        sampled_tokens=0 if compared is None else compared["sampled_tokens"],
        reusable_tokens=0 if compared is None else compared["reusable_tokens"],
        retractions_known=row["retractions_known"],
        retracted=row["retracted"],
    )


async def organization_names(connection: asyncpg.Connection[Any], ids: Collection[UUID | None]) -> dict[UUID, str]:
    """Names with ids, because names are not unique. A deleted organization has its id alone."""
    known = [each for each in ids if each is not None]
    named = {row["id"]: f"{row['name']} ({row['id']})" for row in await connection.fetch(NAMES, known)}
    return {each: named.get(each, str(each)) for each in known}
