"""Data of pages other than usage: a release with evidence, comparisons, reviews, engines' windows, a webhook's log."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from control.releases import store
from control.releases.rollout.config import ReleasesConfig
from control.releases.rollout.controller import Controller
from tests.console.quality import put_candidate, put_comparisons, put_reviews, put_windows
from tests.control.releases.fleets import VALUES
from tests.control.releases.rollout.traffic import Load, history

NOBODY = "http://127.0.0.1:9"
LOOKS = 5
WEBHOOK = """
INSERT INTO gateway.webhooks (organization_id, url, description, secret)
VALUES ($1, 'https://example.com/hook', '', 'sealed') RETURNING id
"""
DELIVERIES = """
INSERT INTO gateway.webhook_events (organization_id, type, data)
SELECT $1, 'budget.threshold', '{}' FROM generate_series(1, 2000)
"""
FOUND = """
SELECT (SELECT id::text FROM gateway.webhooks LIMIT 1), (SELECT id::text FROM gateway.releases LIMIT 1),
       (SELECT id::text FROM evals.comparisons ORDER BY created_at DESC LIMIT 1),
       (SELECT candidate_run::text FROM evals.comparisons ORDER BY created_at DESC LIMIT 1)
"""
NAMES = ("webhookId", "releaseId", "comparisonId", "runId")


async def furnish(database: asyncpg.Connection[Any], url: str, organization: UUID) -> dict[str, str]:
    """Insert the data if there is none yet; returns the ids by the names of the routes' parameters."""
    if not await database.fetchval("SELECT EXISTS (SELECT FROM gateway.releases)"):
        await put_candidate(database, NOBODY, NOBODY)
        await put_comparisons(database)
        await put_reviews(database, url)
        await put_windows(database)
        await database.fetchval(WEBHOOK, organization)
        await database.execute(DELIVERIES, organization)
        await _release(database)
    row = await database.fetchrow(FOUND)
    assert row is not None
    return dict(zip(NAMES, map(str, row), strict=True))


async def _release(database: asyncpg.Connection[Any]) -> None:
    controller, load = Controller(ReleasesConfig()), Load()
    await history(database)
    async with database.transaction():
        made = await store.create(database, "bench", **{**VALUES, "stages": (0.25, 1.0)})
    for _ in range(LOOKS):
        await controller.tick(database)
        standing = await store.locked(database, made.id)
        assert standing is not None
        if not standing.state.ended:
            await load.serve(database, standing, 200)
