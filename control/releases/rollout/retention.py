"""Deletes the evidence of verdicts after its retention: items of evals, and observations of releases' steps.

The verdicts stay, and so do a run's numbers of items and scores.
"""

from __future__ import annotations

import logging

import psycopg
from celery import Celery

from control.releases.rollout.config import EvidenceConfig
from storage.worker_connection import connect

FORGET = "evidence.forget"
PERIODS_S = {FORGET: 3_600.0}
"""Seconds between two runs of the task."""
AT_ONCE = 10_000
"""Items in one transaction."""
STEPS_AT_ONCE = 500
"""Steps in one transaction; each holds up to a megabyte."""
# One statement deletes the items and updates the run's sums, so a killed worker has done both or neither.
FORGET_ITEMS = """
WITH gone AS (
    DELETE FROM evals.items WHERE ctid = ANY(ARRAY(
        SELECT items.ctid
          FROM evals.items
          JOIN evals.runs ON runs.id = items.run_id
          LEFT JOIN evals.comparisons ON runs.id IN (comparisons.baseline_run, comparisons.candidate_run)
         WHERE CASE WHEN comparisons.id IS NULL THEN runs.ended_at ELSE comparisons.ended_at END
               < now() - make_interval(days => %(days)s)
         LIMIT %(most)s FOR UPDATE OF items SKIP LOCKED))
    RETURNING run_id, slice, score
), summed AS (
    SELECT run_id, slice, count(*) AS items, sum(score) AS score FROM gone GROUP BY run_id, slice
), kept AS (
    UPDATE evals.run_slices
       SET forgotten_items = forgotten_items + summed.items, forgotten_score = forgotten_score + summed.score
      FROM summed
     WHERE run_slices.run_id = summed.run_id AND run_slices.slice = summed.slice
)
SELECT count(*) FROM gone
"""
FORGET_STEPS = """
WITH gone AS (
    UPDATE gateway.release_steps SET evidence = NULL WHERE ctid = ANY(ARRAY(
        SELECT release_steps.ctid
          FROM gateway.release_steps
          JOIN gateway.releases ON releases.id = release_steps.release_id
         WHERE releases.ended_at < now() - make_interval(days => %(days)s) AND evidence IS NOT NULL
         LIMIT %(most)s FOR UPDATE OF release_steps SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) FROM gone
"""

logger = logging.getLogger(__name__)


def forget(database_url: str, config: EvidenceConfig) -> tuple[int, int]:
    """Delete evidence past its retention; returns the numbers of items and of steps. Raises psycopg.Error."""
    with connect(database_url, autocommit=True) as connection:
        return (
            _all(connection, FORGET_ITEMS, config.item_retention_days, AT_ONCE),
            _all(connection, FORGET_STEPS, config.step_retention_days, STEPS_AT_ONCE),
        )


def _all(connection: psycopg.Connection, statement: str, days: int, most: int) -> int:
    forgotten = 0
    while True:
        row = connection.execute(statement, {"days": days, "most": most}).fetchone()
        if row is None or not row[0]:
            return forgotten
        forgotten += row[0]


def add_tasks(app: Celery, database_url: str, config: EvidenceConfig) -> None:
    """Register the task with the worker's application."""

    @app.task(
        name=FORGET, shared=False, autoretry_for=(OSError, psycopg.OperationalError), max_retries=3, retry_backoff=True
    )  # type: ignore[untyped-decorator]
    def forget_evidence() -> None:
        items, steps = forget(database_url, config)
        logger.info("evidence: %d items of evals and that of %d steps of releases forgotten", items, steps)
