"""What verdicts were made of is forgotten when it is old, and what was found stays."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from contracts.errors import Conflict
from control.evals import store as evals_store
from control.releases import store
from control.releases.rollout import evidence
from control.releases.rollout.config import EvidenceConfig, ReleasesConfig
from control.releases.rollout.controller import Controller
from control.releases.rollout.judging import replay
from control.releases.rollout.retention import forget
from control.shadow.retention import forget as forget_votes
from tests.control.releases.rollout.test_controller import begun, rolled_out
from tests.control.releases.rollout.traffic import Load

ITEMS = """
INSERT INTO evals.items (run_id, slice, seed, cluster, answer, score, latency_ms)
SELECT $1, 'facts', number, 'c', 'an answer', number % 2, 1 FROM generate_series(1, 10) AS number
"""
CONFIG = EvidenceConfig(item_retention_days=30, step_retention_days=30)


async def test_items_of_what_has_ended_long_ago_are_deleted_and_their_sums_stay(
    connection: asyncpg.Connection, fresh_postgres_url: str
) -> None:
    alone = [await evals_store.queue_run(connection, model="m", slices={"facts": 10}) for _ in range(3)]
    for run in alone:
        await connection.execute(ITEMS, run)
    ended = "UPDATE evals.{} SET status = $2, ended_at = now() - make_interval(days => $3) WHERE id = $1"
    for run, days in zip(alone, (31, 29), strict=False):
        await connection.execute(ended.format("runs"), run, "done", days)
    compared = [
        await evals_store.queue_comparison(
            connection, model="m", baseline_pool="old", candidate_pool="new", slices=["facts"]
        )
        for _ in range(2)
    ]
    found = [await evals_store.comparison(connection, each) for each in compared]
    for each in found:
        await connection.execute(ITEMS, each.baseline_run)
    await connection.execute(ended.format("comparisons"), compared[0], "cancelled", 31)
    assert await asyncio.to_thread(forget, fresh_postgres_url, CONFIG) == (20, 0)
    assert await asyncio.to_thread(forget, fresh_postgres_url, CONFIG) == (0, 0)
    left = {row[0] for row in await connection.fetch("SELECT DISTINCT run_id FROM evals.items")}
    assert left == {alone[1], alone[2], found[1].baseline_run}
    for run in (*alone, found[0].baseline_run, found[1].baseline_run):
        assert run is not None
        (kept,) = await evals_store.slices_of(connection, run)
        assert (kept.answered, kept.score_sum, (await evals_store.run(connection, run)).answered) == (10, 5.0, 10)


async def test_what_an_old_releases_steps_consumed_is_deleted_and_its_verdicts_stay(
    connection: asyncpg.Connection, fresh_postgres_url: str
) -> None:
    release = await begun(connection, Controller(ReleasesConfig()))
    release = await rolled_out(connection, release, Load(failing=0.5))
    assert release.state.ended
    assert await asyncio.to_thread(forget, fresh_postgres_url, CONFIG) == (0, 0)
    verdicts = [row["verdict"] for row in await store.steps_of(connection, release.id)]
    await connection.execute("UPDATE gateway.releases SET ended_at = ended_at - interval '31 days'")
    _, steps = await asyncio.to_thread(forget, fresh_postgres_url, CONFIG)
    rows = await store.steps_of(connection, release.id)
    assert steps == sum(each is not None for each in verdicts) > 0
    assert [row["verdict"] for row in rows] == verdicts
    assert [row["evidence"] for row in rows] == [None] * len(rows)
    with pytest.raises(Conflict, match=r"was forgotten \(worker\.evidence\.step_retention_days\)"):
        replay(release, rows)


async def test_votes_stay_until_their_release_has_ended(
    connection: asyncpg.Connection, fresh_postgres_url: str
) -> None:
    """Fault: the judge counts the votes beyond those it knows, and took none of the next ones as new."""
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller)

    async def voted(first: int, last: int, days: int) -> int:
        """The votes that the judge has counted after these."""
        await connection.execute(
            "INSERT INTO gateway.review_coins (release, unit, worse, recorded_at)"
            " SELECT $1, unit, true, now() - make_interval(days => $4) FROM generate_series($2::int, $3::int) AS unit",
            *(str(release.id), first, last, days),
        )
        await controller.tick(connection)
        steps = await store.steps_of(connection, release.id)
        return sum(evidence.unpacked(row["evidence"]).worse for row in steps)

    async def forgotten() -> int:
        days = {"pair_retention_days": 90, "text_retention_days": 14}
        return await asyncio.to_thread(lambda: forget_votes(fresh_postgres_url, **days))

    assert await voted(1, 6, 100) == 6
    assert await forgotten() == 0
    assert await voted(7, 8, 0) == 8
    await connection.execute("UPDATE gateway.releases SET state = 'rolled_back', ended_at = now()")
    assert await forgotten() == 6
