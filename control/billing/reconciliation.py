"""Compares engines' own counters with the ledger and stores the differences. A task of the worker calls it.

Every run takes a sample of each engine's counters. The window between two samples is compared once its rows have had
time to reach the ledger (`settle_s`), and for a day again while they differ: a gateway may have been unreachable.

A sample also has the engine's figures of its queue, its prefills and its retractions, for diagnosis.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from psycopg.rows import dict_row
from sqlalchemy import BigInteger, ColumnElement, Double, and_, bindparam, func, select

from contracts.dated_request_id import first_at
from contracts.desired_state import Pool, Replica
from contracts.errors import SlipstreamError
from contracts.usage import Outcome
from control.billing.events import IN_PARTITIONS
from control.billing.windows import Bounds, Sample, Window, continues, drift, windows
from engines.drivers import registry as drivers
from engines.drivers.counters import Counting, EngineCounts, EngineStages
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from gateway.desired import document
from storage.tables.metering import usage_events
from storage.worker_connection import Connection, connect, run

logger = logging.getLogger(__name__)

LOCK_ID = 0x7265636F
"""Key of the advisory lock, the bytes of `reco`."""
ASK_TIMEOUT_S = 5.0
METRICS_BYTES = 16_777_216
LONGEST_ATTEMPT_S = 86_400.0
"""A comparison ignores requests that arrived longer than this before its window."""
CLOCKS_S = 2.0

NEWEST_STATE = "SELECT version, document::text FROM gateway.desired_states ORDER BY version DESC LIMIT 1"
LAST_SAMPLE = """
SELECT url, prompt_tokens, cached_tokens, completion_tokens,
       queue_s, prefill_s, requests, retractions FROM gateway.engine_counts
 WHERE replica_id = %s ORDER BY sampled_at DESC LIMIT 1
"""
KEEP_SAMPLE = """
INSERT INTO gateway.engine_counts
       (replica_id, sampled_at, pool, url, prompt_tokens, cached_tokens, completion_tokens, continues,
        queue_s, prefill_s, requests, retractions)
VALUES (%s, clock_timestamp(), %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
SAMPLES = """
SELECT extract(epoch FROM sampled_at)::float8, prompt_tokens, cached_tokens, completion_tokens, continues
  FROM gateway.engine_counts
 WHERE replica_id = %s AND sampled_at >= to_timestamp(%s) AND sampled_at <= now() - make_interval(secs => %s)
 ORDER BY sampled_at
"""
# A prompt is certain to count only after the first token. An attempt that crosses an edge may count partly or whole.
_E = usage_events.c
_BEGIN, _END, _CLOCKS = (bindparam(name, type_=Double) for name in ("begin", "end", "clocks"))
_INSIDE = and_(_E.opened_at >= func.to_timestamp(_BEGIN + _CLOCKS), _E.closed_at <= func.to_timestamp(_END - _CLOCKS))


def _sum(column: ColumnElement[int], *only: ColumnElement[bool]) -> ColumnElement[int]:
    total = func.sum(column)
    return func.coalesce(total.filter(*only) if only else total, 0).cast(BigInteger)


BOUNDS = select(
    _sum(_E.prompt_tokens, _INSIDE, _E.completion_tokens > 0),
    _sum(_E.prompt_tokens),
    _sum(_E.completion_tokens, _INSIDE),
    _sum(_E.completion_tokens),
    func.count().filter(_E.outcome != Outcome.EXACT.value),
).where(
    IN_PARTITIONS,
    _E.replica_id == bindparam("replica"),
    _E.opened_at < func.to_timestamp(_END + _CLOCKS),
    _E.closed_at > func.to_timestamp(_BEGIN - _CLOCKS),
)
KEEP = """
INSERT INTO gateway.reconciliations
VALUES (%(replica)s, to_timestamp(%(begin)s), to_timestamp(%(end)s), %(prompt)s, %(completion)s,
        %(prompt_min)s, %(prompt_max)s, %(completion_min)s, %(completion_max)s, %(uncertain)s,
        %(prompt_drift)s, %(completion_drift)s, now())
    ON CONFLICT (replica_id, window_from) DO UPDATE
   SET window_until = excluded.window_until, engine_prompt_tokens = excluded.engine_prompt_tokens,
       engine_completion_tokens = excluded.engine_completion_tokens,
       ledger_prompt_tokens_min = excluded.ledger_prompt_tokens_min,
       ledger_prompt_tokens_max = excluded.ledger_prompt_tokens_max,
       ledger_completion_tokens_min = excluded.ledger_completion_tokens_min,
       ledger_completion_tokens_max = excluded.ledger_completion_tokens_max,
       uncertain_attempts = excluded.uncertain_attempts, prompt_drift = excluded.prompt_drift,
       completion_drift = excluded.completion_drift, checked_at = excluded.checked_at
"""
DOUBTFUL = """
SELECT replica_id, extract(epoch FROM window_from)::float8 AS begin, extract(epoch FROM window_until)::float8 AS end,
       engine_prompt_tokens AS prompt, engine_completion_tokens AS completion, prompt_drift, completion_drift
  FROM gateway.reconciliations
 WHERE (prompt_drift <> 0 OR completion_drift <> 0) AND window_until > now() - interval '24 hours'
"""

FORGET = (
    "DELETE FROM gateway.engine_counts WHERE sampled_at < now() - interval '35 days'",
    "DELETE FROM gateway.reconciliations WHERE window_until < now() - interval '400 days'",
    "DELETE FROM gateway.usage_verifications WHERE checked_at < now() - interval '400 days'",
)

AskEngine = Callable[[list[tuple[Pool, Replica]]], Awaitable[dict[str, EngineCounts]]]
"""Reads these engines' counters, by replica id. An engine that does not answer is left out."""
Sampled = Callable[[str, str, EngineCounts | None, EngineCounts], None]
"""Called for each stored sample with its pool, replica id, the process's previous sample (if any), and the sample."""


class Finding(msgspec.Struct, frozen=True):
    """A window in which engine and ledger differ."""

    replica_id: str
    window: Window
    bounds: Bounds
    uncertain_attempts: int
    """Attempts of uncertain length, which may explain tokens that the ledger lacks."""
    prompt_drift: int
    completion_drift: int


class EngineCounters:
    """Reads the counters of all engines whose dialect has them, concurrently."""

    def __init__(self, keys: Callable[[], EngineKeys]) -> None:
        """keys: returns the keys of engines; called only if an engine is to be read."""
        self._keys = keys

    async def __call__(self, replicas: list[tuple[Pool, Replica]]) -> dict[str, EngineCounts]:
        """Read counters by replica id. An engine that does not answer is logged and left out."""
        if not replicas:
            return {}
        keys = self._keys()
        keys.follow(pool for pool, _ in replicas)
        connections = EngineConnections(keys)
        try:
            found = await asyncio.gather(*(self._one(connections, pool, replica) for pool, replica in replicas))
        finally:
            await connections.close()
        return {replica.id: counts for (_, replica), counts in zip(replicas, found, strict=True) if counts is not None}

    async def _one(self, connections: EngineConnections, pool: Pool, replica: Replica) -> EngineCounts | None:
        driver = drivers.get(pool.driver)
        if not isinstance(driver, Counting):
            return None
        try:
            status, body = await connections.fetch(
                replica.url, driver.counts(), ASK_TIMEOUT_S, METRICS_BYTES, pool_name=pool.name
            )
            if status != 200:
                logger.warning("reconciliation: %s returned %d for its counters", replica.id, status)
                return None
            return driver.parse_counts(body)
        except SlipstreamError as error:
            logger.warning("reconciliation: %s does not report its counters: %s", replica.id, error.message)
            return None
        except Exception:
            # a defect in a driver must cost only this engine's window
            logger.exception("reconciliation: asking %s for its counters failed", replica.id)
            return None


def reconcile(
    database_url: str,
    ask: AskEngine,
    *,
    window_s: float = 3_600.0,
    settle_s: float = 600.0,
    clocks_s: float = CLOCKS_S,
    sampled: Sampled | None = None,
) -> list[Finding]:
    """Sample every engine, compare settled windows, and return those that differ. window_s: minimum length of a window.
    settle_s: how long after a sample its attempts may still be closing and shipping. clocks_s: largest difference
    between the clocks of gateways and worker. sampled: called with the stored samples.

    Raises psycopg.Error while the database is unreachable.
    """
    with connect(database_url, autocommit=True) as connection:
        with connection.transaction():
            # Two workers that sample one engine at once would see its counters fall, and take that for a restart.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
            replicas = _replicas(connection)
            counts = asyncio.run(_asked(ask, replicas))
            kept = _keep_samples(connection, replicas, counts)
        if sampled is not None:
            for each in kept:
                sampled(*each)
        known = _doubtful(connection)
        findings = [_compared(connection, replica_id, window, clocks_s) for replica_id, window in known]
        for (replica_id,) in connection.execute("SELECT DISTINCT replica_id FROM gateway.engine_counts").fetchall():
            for window in _settled_windows(connection, replica_id, window_s, settle_s):
                findings.append(_compared(connection, replica_id, window, clocks_s))
        for statement in FORGET:
            connection.execute(statement)
    disagreeing = [finding for finding in findings if finding.prompt_drift or finding.completion_drift]
    for finding in disagreeing:
        if known.get((finding.replica_id, finding.window)) != (finding.prompt_drift, finding.completion_drift):
            logger.error("reconciliation: %s", _told(finding))  # once, not in every run for a day
    return disagreeing


async def _asked(ask: AskEngine, replicas: list[tuple[Pool, Replica]]) -> dict[str, EngineCounts]:
    return await ask(replicas)


def _replicas(connection: Connection) -> list[tuple[Pool, Replica]]:
    newest = connection.execute(NEWEST_STATE).fetchone()
    if newest is None:
        return []
    state = document.decode(*newest)
    return [(pool, replica) for pool in state.pools for replica in pool.replicas]


def _keep_samples(
    connection: Connection, replicas: list[tuple[Pool, Replica]], counts: dict[str, EngineCounts]
) -> list[tuple[str, str, EngineCounts | None, EngineCounts]]:
    """Store the samples, and return the arguments of `Sampled`."""
    kept: list[tuple[str, str, EngineCounts | None, EngineCounts]] = []
    for pool, replica in replicas:
        now = counts.get(replica.id)
        if now is None:
            continue
        last = connection.execute(LAST_SAMPLE, (replica.id,)).fetchone()
        before = _counts(*last[1:]) if last is not None and last[0] == replica.url else None
        if last is not None and not continues(before, now):
            logger.info("reconciliation: %s was restarted; its counts since its last sample are lost", replica.id)
        tokens = (now.prompt_tokens, now.cached_tokens, now.completion_tokens)
        stages = (None,) * 4 if now.stages is None else msgspec.structs.astuple(now.stages)
        connection.execute(KEEP_SAMPLE, (replica.id, pool.name, replica.url, *tokens, continues(before, now), *stages))
        kept.append((pool.name, replica.id, before if continues(before, now) else None, now))
    return kept


def _counts(prompt: int, cached: int, completion: int, queue_s: float | None, *rest: Any) -> EngineCounts:
    """A row's counts. Its columns of stages are null together."""
    return EngineCounts(prompt, cached, completion, None if queue_s is None else EngineStages(queue_s, *rest))


def _doubtful(connection: Connection) -> dict[tuple[str, Window], tuple[int, int]]:
    """Windows that differed at the last comparison, and their differences."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(DOUBTFUL).fetchall()
    return {
        (row["replica_id"], Window(row["begin"], row["end"], row["prompt"], row["completion"])): (
            row["prompt_drift"],
            row["completion_drift"],
        )
        for row in rows
    }


def _settled_windows(connection: Connection, replica_id: str, window_s: float, settle_s: float) -> list[Window]:
    row = connection.execute(
        "SELECT coalesce(extract(epoch FROM max(window_until)), 0)::float8 FROM gateway.reconciliations "
        "WHERE replica_id = %s",
        (replica_id,),
    ).fetchone()
    compared_until = float(row[0]) if row is not None else 0.0
    samples = [
        Sample(at, EngineCounts(prompt, cached, completion), on)
        for at, prompt, cached, completion, on in connection.execute(SAMPLES, (replica_id, compared_until, settle_s))
    ]
    return list(windows(samples, window_s, compared_until))


def _compared(connection: Connection, replica_id: str, window: Window, clocks_s: float) -> Finding:
    ids = {"first": first_at(max(0.0, window.begin - LONGEST_ATTEMPT_S)), "last": first_at(window.end + clocks_s)}
    parameters = {"replica": replica_id, "begin": window.begin, "end": window.end, "clocks": clocks_s}
    found = run(connection, BOUNDS, {**ids, **parameters}).fetchone()
    assert found is not None
    *edges, uncertain = found
    bounds = Bounds(*edges)
    prompt_drift = drift(window.prompt_tokens, bounds.prompt_tokens_min, bounds.prompt_tokens_max)
    completion_drift = drift(window.completion_tokens, bounds.completion_tokens_min, bounds.completion_tokens_max)
    connection.execute(
        KEEP,
        {
            **parameters,
            "prompt": window.prompt_tokens,
            "completion": window.completion_tokens,
            "prompt_min": bounds.prompt_tokens_min,
            "prompt_max": bounds.prompt_tokens_max,
            "completion_min": bounds.completion_tokens_min,
            "completion_max": bounds.completion_tokens_max,
            "uncertain": uncertain,
            "prompt_drift": prompt_drift,
            "completion_drift": completion_drift,
        },
    )
    return Finding(replica_id, window, bounds, uncertain, prompt_drift, completion_drift)


def _told(finding: Finding) -> str:
    begin, end = (
        datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
        for moment in (finding.window.begin, finding.window.end)
    )
    return (
        f"{finding.replica_id} from {begin} to {end}: the ledger is off by {finding.prompt_drift:+} prompt and "
        f"{finding.completion_drift:+} completion tokens (plus: the engine counted more), with "
        f"{finding.uncertain_attempts} attempts of uncertain length; see docs/runbooks/drift.md"
    )
