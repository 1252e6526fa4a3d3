"""Checks the tables behind the topics for changes since the previous check. Each statement reads a few rows by
an index, or a table that upkeep keeps small.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from control.api.events.topics import News, Topic

DIGESTS: dict[Topic, str] = {
    Topic.FLEET: """
        SELECT (SELECT max(version) FROM gateway.desired_states),
               (SELECT string_agg(concat(instance, ' ', version, ' ', refused_version), ',' ORDER BY instance)
                  FROM gateway.fleet_gateways)""",
    Topic.RELEASES: """
        SELECT count(*), sum(step), sum(stage), count(ended_at), max(watermark), sum(more_units),
               sum(hashtext(told)::bigint)
          FROM gateway.releases""",
    Topic.EVALS: """
        SELECT count(*), count(started_at), count(ended_at), max(lease_until),
               (SELECT count(*) FROM evals.comparisons), (SELECT count(ended_at) FROM evals.comparisons),
               (SELECT max(lease_until) FROM evals.comparisons)
          FROM evals.runs""",
    Topic.REVIEWS: "SELECT (SELECT count(*) FROM gateway.reviews), (SELECT count(*) FROM gateway.review_votes)",
    Topic.RECONCILIATIONS: """
        SELECT (SELECT max(window_from) FROM gateway.reconciliations),
               (SELECT max(checked_at) FROM gateway.usage_verifications)""",
}
"""Queries whose results change with every change of the deployment's topic."""
RUNS: dict[Topic, str] = {
    Topic.USAGE: "SELECT max(started_at) FROM gateway.usage_roll_up_runs",
    Topic.SLO: "SELECT max(started_at) FROM gateway.slo_roll_up_runs",
    Topic.COMPLETIONS: "SELECT max(started_at) FROM gateway.completion_roll_up_runs",
}
"""Queries for the latest update of totals."""
WITH_RUN: dict[Topic, tuple[Topic, ...]] = {
    Topic.USAGE: (Topic.USAGE,),
    Topic.SLO: (Topic.SLO, Topic.PREFIXES),
    Topic.COMPLETIONS: (Topic.COMPLETIONS,),
}
WITH_REQUESTS = (Topic.REQUESTS, Topic.USAGE, Topic.DIAGNOSIS)
RECORDED = """
SELECT organization_id, count(*) AS requests FROM gateway.request_traces WHERE recorded_at >= $1 GROUP BY 1
"""
LATE = timedelta(seconds=30)
"""A row's recorded_at is the start of its transaction, which gateways abandon after five seconds (serving/trace.py)."""
LOOKS_BACK = timedelta(minutes=2)
"""Age of the oldest rows that a check counts."""


class Look:
    """Finds changes since the last check. replicas: returns every engine, as the router last reported."""

    def __init__(self, replicas: Callable[[], object]) -> None:
        self._replicas = replicas
        self._seen: dict[Topic, object] = {}
        self._since: datetime | None = None
        self._recorded: dict[UUID, int] = {}
        self._active: dict[Topic, set[UUID]] = {topic: set() for topic in RUNS}
        """Organizations with requests recorded since the topic's last run."""

    async def news(self, connection: asyncpg.Connection[Any], wanted: frozenset[Topic]) -> set[News]:
        """Find changes in these topics at least. The first check of a topic finds none. Raises FAILURES."""
        found: set[News] = set()
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            for topic in sorted(wanted & DIGESTS.keys()):
                digest: object = tuple(await connection.fetchrow(DIGESTS[topic]) or ())
                if topic is Topic.FLEET:
                    digest = (digest, repr(self._replicas()))
                if self._is_new(topic, digest):
                    found.add(News(topic))
            active = await self._organizations(connection)
            for organization_id in active:
                found.update(News(topic, organization_id) for topic in WITH_REQUESTS)
            for topic, statement in RUNS.items():
                self._active[topic] |= active
                if self._is_new(topic, await connection.fetchval(statement)):
                    for each in WITH_RUN[topic]:
                        found.add(News(each))
                        found.update(News(each, organization_id) for organization_id in self._active[topic])
                    self._active[topic].clear()
        return found

    async def _organizations(self, connection: asyncpg.Connection[Any]) -> set[UUID]:
        """Organizations whose requests were recorded since the last check. When the starting point advances, both
        counts use one snapshot, so that they miss no row."""
        now: datetime = await connection.fetchval("SELECT now()")
        if self._since is not None and now < self._since:  # the database's clock was set back
            self._since, self._recorded = now - LATE, {}
        if self._since is None or now - self._since > LOOKS_BACK:
            active = set() if self._since is None else await self._counted(connection, self._since)
            self._since = now - LATE
            await self._counted(connection, self._since)
            return active
        return await self._counted(connection, self._since)

    async def _counted(self, connection: asyncpg.Connection[Any], since: datetime) -> set[UUID]:
        before = self._recorded
        self._recorded = {row["organization_id"]: row["requests"] for row in await connection.fetch(RECORDED, since)}
        return {each for each, requests in self._recorded.items() if requests > before.get(each, 0)}

    def _is_new(self, topic: Topic, seen: object) -> bool:
        before = self._seen.get(topic)
        known = topic in self._seen
        self._seen[topic] = seen
        return known and seen != before
