"""What the operators' pages of quality show: a fleet with a candidate, runs that are done, pairs to review, windows."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import msgspec

from contracts.cascade import Cascade
from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from control.evals import store as evals_store
from control.fleet import edits
from control.fleet.revision import newest, write
from evals.gate import PairedItem, SliceRule, judge
from storage.engine import lazy_pool
from tests.gateway.shadow.pairs import SAME, pair, project, store_on, texts

SLICES = {"facts": 0.0, "json": 0.06}
"""By how much the candidate is worse."""
ITEM = """
INSERT INTO evals.items (run_id, slice, seed, cluster, answer, score, latency_ms) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
SLICE_VERSION = """
INSERT INTO evals.slice_versions (slice, version, about, goal) VALUES ($1, 'v1', 'tests', 0.85)
ON CONFLICT (slice, version) DO UPDATE SET about = excluded.about RETURNING id
"""
NIGHT = """
WITH asked AS (
    INSERT INTO evals.runs (model, pool, first_seed, night, status, created_at, ended_at)
    VALUES ('m', $1, 0, current_date - $2::int, 'done', now() - $2 * interval '1 day', now() - $2 * interval '1 day')
    RETURNING id
)
INSERT INTO evals.nights (run_id, model, pool, night, judged_at, decision, reason, changed, slices, release_id)
SELECT id, 'm', $1, current_date - $2::int, now() - $2 * interval '1 day', $3, $4, $5, $6::text::jsonb, $7 FROM asked
"""
WINDOW = """
INSERT INTO gateway.reconciliations
SELECT $1, now() - $2 * interval '5 min', now() - ($2 - 1) * interval '5 min', 1000 + $3, 400, 900, 1000, 390, 400,
       $4, $3, 0, now()
"""
VERIFIED = """
INSERT INTO gateway.usage_verifications (from_day, until_day, rows, wrong_hours, wrong_days, wrong_amounts)
VALUES ('2026-11-15', '2026-11-22', 4120, 0, 0, 0)
"""


async def put_candidate(database: asyncpg.Connection, old_url: str, new_url: str) -> None:
    """A model `m` on the pool `old`, beside a pool `new`, and a cascade that nobody has approved."""
    old = Pool("old", "sglang", (Replica("old-0", old_url),), 1_000)
    new = Pool("new", "sglang", (Replica("new-0", new_url),), 1_000)
    model = Model("m", Tier.CHAT, "old", 4_096)
    large = Model("large", Tier.CHAT, "old", 4_096, cascade=Cascade("m", when="always"))

    def edit(state: DesiredState) -> DesiredState:
        for pool in (old, new):
            state = edits.put_pool(state, pool)
        for each in (model, large):
            state = edits.put_model(state, each)
        return state

    async with database.transaction():
        await write(database, edit, actor="tests", action="put")


@contextlib.asynccontextmanager
async def candidate(database: asyncpg.Connection, old_url: str, new_url: str) -> AsyncIterator[None]:
    """The same, and in the end the fleet as it was."""
    before = (await newest(database)).state
    await put_candidate(database, old_url, new_url)
    yield
    async with database.transaction():
        await write(database, lambda _: before, actor="tests", action="put")


async def put_comparisons(database: asyncpg.Connection, seed: int = 7) -> list[UUID]:
    """Four comparisons of `old` and `new` that are done, a day apart, the newest last."""
    async with database.transaction():  # else a worker would begin them
        return await _put_comparisons(database, random.Random(seed))


async def _put_comparisons(database: asyncpg.Connection, choose: random.Random) -> list[UUID]:
    made = []
    for day in range(4, 0, -1):
        comparison_id = await evals_store.queue_comparison(
            database, model="m", baseline_pool="old", candidate_pool="new", slices=list(SLICES), budget=400
        )
        found = await evals_store.comparison(database, comparison_id)
        paired: dict[str, list[PairedItem]] = {}
        for name, worse in SLICES.items():
            paired[name] = await _answered(database, found, name, worse, choose)
        rule = SliceRule(first_look=200, budget=400)
        verdict = judge(paired, dict.fromkeys(SLICES, rule))
        await database.execute(
            "UPDATE evals.comparisons SET status = 'done', decision = $2, verdict = $3,"
            " created_at = now() - $4 * interval '1 day', started_at = now(), ended_at = now() WHERE id = $1",
            comparison_id,
            verdict.decision.value,
            msgspec.json.encode(verdict).decode(),
            day,
        )
        await database.execute(
            "UPDATE evals.runs SET created_at = now() - $3 * interval '1 day' WHERE id IN ($1, $2)",
            found.baseline_run,
            found.candidate_run,
            day,
        )
        made.append(comparison_id)
    return made


async def _answered(
    database: asyncpg.Connection, found: evals_store.Comparison, name: str, worse: float, choose: random.Random
) -> list[PairedItem]:
    """Two hundred items of a slice, answered by both."""
    version = await database.fetchval(SLICE_VERSION, name)
    paired, rows = [], []
    for seed in range(200):
        baseline = float(choose.random() < 0.9)
        candidate = 0.0 if choose.random() < worse else baseline
        cluster = f"What is the capital of number {seed % 40}?"
        for run, score in ((found.baseline_run, baseline), (found.candidate_run, candidate)):
            answer = f"It is city {seed}." if score else "I do not know."
            rows.append((run, name, seed, cluster, answer, score, choose.uniform(200, 900)))
        paired.append(PairedItem(name, cluster, baseline, candidate))
    await database.executemany(ITEM, rows)
    for run in (found.baseline_run, found.candidate_run):
        await database.execute(
            "UPDATE evals.run_slices SET slice_version_id = $3 WHERE run_id = $1 AND slice = $2", run, name, version
        )
    return paired


async def put_nights(database: asyncpg.Connection, release: UUID | None = None, count: int = 9) -> None:
    """Nights of the model `m`, the newest today: on the pool `new` its slice json is worse. release: that moved it
    there."""
    for back in range(count - 1, -1, -1):
        worse = back == 0
        slices = [
            {
                "slice": name,
                "decision": ("fail" if worse and lost else "pass") if back < count - 5 else "inconclusive",
                "reason": _why_night(worse and lost > 0, back < count - 5),
                "against": "version_before" if worse else "history",
                "nights": 1 if worse else 3,
                "items": 40 if worse else 120,
                "clusters": 9,
                "difference": -0.45 if worse and lost else 0.0,
                "lower": -0.6 if worse and lost else -0.025,
                "upper": -0.12 if worse and lost else 0.1,
                "score": 0.52 if worse and lost else 0.97,
            }
            for name, lost in SLICES.items()
        ]
        decisions = {each["decision"] for each in slices}
        decision = next(each for each in ("fail", "inconclusive", "pass") if each in decisions)
        await database.execute(
            NIGHT,
            "new" if worse else "old",
            back,
            decision,
            {"fail": "1 of 2 slices worse: json", "pass": "all of 2 slices passed"}.get(
                decision, "2 of 2 slices not decided: facts, json"
            ),
            ["pool: old -> new"] if worse else [],
            msgspec.json.encode(slices).decode(),
            release if worse else None,
        )


def _why_night(worse: bool, decided: bool) -> str:
    if not decided:
        return "no history: no earlier night has answered these items"
    if worse:
        return "-45.0 points over 40 items of tonight, below -12.0 points, against the version before"
    return "not worse by 5.0 points or more: above -2.5 points"


async def put_reviews(database: asyncpg.Connection, url: str, count: int = 3) -> None:
    """Pairs with texts, each of another session, and as many compared copies."""
    pool = await lazy_pool(url, size=2, connect_timeout_s=5)
    store, whose = store_on(pool), await project(database)
    for number in range(count):
        other = msgspec.structs.replace(SAME, answer=msgspec.structs.replace(SAME.answer, text=f"no {number}"))
        said = texts(
            whose,
            prompt=f"user: How many moons has planet {number}?",
            baseline=f"Planet {number} has {number} moons.",
            candidate=f"{number} moons.\n\nThey are listed in the table of planet {number}.",
        )
        store.add(pair(candidate=other, release="", model="m", unit=number + 1, stage_share=0.25), said)
    await store.flush()
    pool.terminate()


async def put_windows(database: asyncpg.Connection) -> None:
    """Windows of two engines, one of which counted more than the ledger."""
    for place in range(1, 7):
        await database.execute(WINDOW, "old-0", place, 0, 0)
    await database.execute(WINDOW, "new-0", 2, 120, 3)
    await database.execute(WINDOW, "new-0", 3, -40, 0)
    await database.execute(VERIFIED)
