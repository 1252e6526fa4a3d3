"""Traffic of a deployment that is well, as rows, and what each cause does to it. Seeded; times are lognormal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from control.diagnosis.findings.evidence import Audit, AuditFinding, Evidence
from control.diagnosis.findings.finding import Cause, Finding
from control.diagnosis.findings.tree import Diagnosis
from tests.control.diagnosis.findings.plain_evidence import Row, window_of

BEGAN = datetime(2026, 11, 1, 12, tzinfo=UTC)
WINDOW = timedelta(seconds=60)
RATE = 4.0
TENANTS = ("acme", "bolt", "corp")
REPLICAS = 3
SYSTEM_TOKENS, PREFILL_MS, TOKEN_MS = 900, 0.12, 20.0

Change = Callable[[random.Random, Row], Row]


def rows(source: random.Random, began: datetime) -> Iterator[Row]:
    """A window of healthy requests: two thirds of each prompt are cached."""
    at = began
    while (at := at + timedelta(seconds=source.expovariate(RATE))) < began + WINDOW:
        yield a_row(source, at, source.choice(TENANTS), SYSTEM_TOKENS + source.randint(100, 700), SYSTEM_TOKENS)


def a_row(source: random.Random, at: datetime, organization: str, prompt_tokens: int, cached_tokens: int) -> Row:
    def noisy(value: float, spread: float = 0.25) -> float:
        return value * source.lognormvariate(0, spread)

    row = Row(
        at=at,
        organization=organization,
        replica_id=f"replica-{source.randrange(REPLICAS)}",
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        completion_tokens=source.randint(20, 60),
        reusable_tokens=SYSTEM_TOKENS,
        phases_ms={
            "auth": noisy(1.0),
            "limit": noisy(2.0),
            "queue": 0.0,
            "route": noisy(1.5),
            "first_token": noisy(4.0),
            "decode": noisy(800.0),
            "stream": noisy(3.0),
        },
        tpot_ms=noisy(TOKEN_MS, 0.1),
        itl_max_ms=noisy(60.0),
        client_stall_ms=0.0,
        engine_queue_ms=noisy(5.0, 0.6),
        engine_prefill_ms=noisy(20.0 + PREFILL_MS * (prompt_tokens - cached_tokens)),
        engine_grammar_ms=0.0,
        retractions=0,
    )
    return summed(row)


def summed(row: Row) -> Row:
    """With the phase `engine` and the time to first token that follow from the parts."""
    engine_ms = (row.engine_queue_ms or 0.0) + (row.engine_prefill_ms or 0.0) + (row.engine_grammar_ms or 0.0) + 3.0
    phases_ms = {**row.phases_ms, "engine": engine_ms}
    before_text = ("auth", "limit", "queue", "route", "engine", "first_token")
    return msgspec.structs.replace(row, phases_ms=phases_ms, ttft_ms=sum(phases_ms[name] for name in before_text))


def changed(row: Row, **values: object) -> Row:
    """A row with other columns; names of phases change those."""
    phases = {name: float(str(value)) for name, value in values.items() if name in row.phases_ms}
    columns = {name: value for name, value in values.items() if name not in row.phases_ms}
    return summed(msgspec.structs.replace(row, phases_ms={**row.phases_ms, **phases}, **columns))


def _queue(source: random.Random, row: Row) -> Row:
    return changed(row, queue=source.expovariate(1 / 600))


def _engine_queue(source: random.Random, row: Row) -> Row:
    return changed(row, engine_queue_ms=source.expovariate(1 / 600))


def _prefill(source: random.Random, row: Row) -> Row:
    return changed(row, engine_prefill_ms=(row.engine_prefill_ms or 0) * 4)


def _long_prompts(source: random.Random, row: Row) -> Row:
    longer = a_row(source, row.at, row.organization, source.randint(9_000, 15_000), SYSTEM_TOKENS)
    return changed(longer, engine_queue_ms=source.expovariate(1 / 300), itl_max_ms=source.uniform(100, 900))


def _unsplit(source: random.Random, row: Row) -> Row:
    slow = changed(row, engine_queue_ms=source.expovariate(1 / 600))
    return msgspec.structs.replace(slow, engine_queue_ms=None, engine_prefill_ms=None, engine_grammar_ms=None)


def _decode(source: random.Random, row: Row) -> Row:
    return changed(row, tpot_ms=(row.tpot_ms or 0) * 3, itl_max_ms=(row.itl_max_ms or 0) * 3)


def _choppy(source: random.Random, row: Row) -> Row:
    return changed(row, itl_max_ms=source.uniform(300, 900))


def _retractions(source: random.Random, row: Row) -> Row:
    if source.random() < 0.15:
        return changed(row, retractions=1, itl_max_ms=2_000.0, tpot_ms=90.0, engine_queue_ms=900.0)
    return changed(row, engine_queue_ms=source.expovariate(1 / 200))


def _failures(source: random.Random, row: Row) -> Row:
    if source.random() < 0.1:
        return msgspec.structs.replace(row, status=503, error_code="engine_failed", attempts=2)
    return row


def _platform_failures(source: random.Random, row: Row) -> Row:
    if source.random() < 0.5:
        return msgspec.structs.replace(row, status=503, error_code="router_unavailable", ttft_ms=None)
    return row


def _limits(source: random.Random, row: Row) -> Row:
    if source.random() < 0.3:
        return msgspec.structs.replace(
            row, status=429, error_code="rate_limit_exceeded", rule="requests_per_minute of the key", ttft_ms=None
        )
    return row


def _slow_replica(source: random.Random, row: Row) -> Row:
    return _decode(source, row) if row.replica_id == "replica-1" else row


def _broken_prefix(source: random.Random, row: Row) -> Row:
    if row.organization != "bolt":
        return row
    return changed(a_row(source, row.at, row.organization, row.prompt_tokens or 0, 16), reusable_tokens=16)


def _lost_cache(source: random.Random, row: Row) -> Row:
    cached = SYSTEM_TOKENS if source.random() < 0.2 else 0
    return a_row(source, row.at, row.organization, row.prompt_tokens or 0, cached)


def _cold_cache(source: random.Random, row: Row) -> Row:
    warm = (row.at - BEGAN - WINDOW) / WINDOW
    cached = SYSTEM_TOKENS if source.random() < 2.5 * warm - 0.6 else 0
    return a_row(source, row.at, row.organization, row.prompt_tokens or 0, cached)


def _slow_client(source: random.Random, row: Row) -> Row:
    if row.organization != "corp":
        return row
    return changed(row, client_stall_ms=source.uniform(500, 3_000), stream=source.uniform(300, 900))


def _grammar(source: random.Random, row: Row) -> Row:
    return changed(row, engine_grammar_ms=600.0 * source.lognormvariate(0, 0.3)) if source.random() < 0.3 else row


def _phase(name: str, slower_ms: float) -> Change:
    def change(source: random.Random, row: Row) -> Row:
        return changed(row, **{name: slower_ms * source.lognormvariate(0, 0.3)})

    return change


def _limiter(source: random.Random, row: Row) -> Row:
    return _phase("limit", 120.0)(source, _phase("stream", 120.0)(source, row))


CHANGES: dict[Cause, Change] = {
    Cause.PLATFORM_FAILURES: _platform_failures,
    Cause.RETRACTIONS: _retractions,
    Cause.ENGINE_FAILURES: _failures,
    Cause.LIMITS: _limits,
    Cause.SLOW_REPLICA: _slow_replica,
    Cause.COLD_CACHE: _cold_cache,
    Cause.BROKEN_PREFIX: _broken_prefix,
    Cause.LOST_CACHE: _lost_cache,
    Cause.LONG_PROMPTS: _long_prompts,
    Cause.SLOW_ARRIVAL: _phase("auth", 90.0),
    Cause.SLOW_LIMITER: _limiter,
    Cause.SLOW_ROUTER: _phase("route", 250.0),
    Cause.QUEUE: _queue,
    Cause.SLOW_PREFILL: _prefill,
    Cause.QUEUE_OR_PREFILL: _unsplit,
    Cause.GRAMMAR: _grammar,
    Cause.SLOW_FIRST_TOKEN: _phase("first_token", 400.0),
    Cause.SLOW_DECODE: _decode,
    Cause.CHOPPY_DECODE: _choppy,
    Cause.SLOW_CLIENT: _slow_client,
    Cause.SLOW_FINISH: _phase("stream", 150.0),
    Cause.NETWORK: lambda source, row: row,
}
BUFFERED = AuditFinding("buffered", "of 24 events 23 arrived joined", "proxy_buffering off;", True, 900.0)


def evidence(seed: int, cause: Cause | None, *, compared: bool = True) -> Evidence:
    """A healthy window, and one after it in which something is wrong; None: nothing. compared: prompts were compared
    with earlier ones."""
    source = random.Random(seed)
    change = CHANGES[cause] if cause is not None else lambda _, row: row
    before = list(rows(source, BEGAN))
    now = [change(source, row) for row in rows(source, BEGAN + WINDOW)]
    if not compared:
        before, now = ([msgspec.structs.replace(row, reusable_tokens=None) for row in each] for each in (before, now))
    return Evidence(
        before=window_of(before, BEGAN, BEGAN + WINDOW),
        now=window_of(now, BEGAN + WINDOW, BEGAN + 2 * WINDOW),
        audit=Audit(findings=(BUFFERED,) if cause is Cause.NETWORK else ()),
    )


def first_of(found: Diagnosis) -> Finding:
    """The primary finding of a diagnosis that has one."""
    assert found.primary is not None, found
    return found.primary
