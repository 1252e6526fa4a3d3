"""Evidence of a release at each look, and scores of slices over time: what the console draws."""

from __future__ import annotations

import msgspec
import pytest

from control.evals import store as evals_store
from tests.control.api.examples import things_of
from tests.control.api.people import People

STEP = """
INSERT INTO gateway.release_steps (release_id, step, event, stage, to_stage, state, actor, reason, verdict)
VALUES ($1, $2, $3, 1, 1, 'running', 'worker', 'r', $4)
"""
ITEM = """
INSERT INTO evals.items (run_id, slice, seed, cluster, answer, score, latency_ms) VALUES ($1, $2, $3, $4, 'a', $5, 10)
"""


def verdict(candidate: int, *, itl: bool = True) -> str:
    """Of a look: a test of harm, and one that comes later."""
    errors = {
        "metric": "errors", "test": "sessions with a fault", "candidate": candidate, "control": 1, "alpha": 0.02,
        "is_enough": False, "log10_e": candidate / 10,
    }  # fmt: skip
    gaps = {**errors, "metric": "itl", "test": "first requests", "alpha": 0.0}
    found = {"candidate_units": candidate, "control_units": 7, "harms": [errors, *([gaps] if itl else [])]}
    return msgspec.json.encode(found).decode()


async def test_evidence_is_told_test_by_test_for_every_look(people: People) -> None:
    operator = await people.operator()
    release = (await things_of(people, "operator", fresh=True, only=["release_id"]))["release_id"]
    await people.database.execute(STEP, release, 10, "observe", verdict(3, itl=False))
    await people.database.execute(STEP, release, 11, "observe", verdict(5))
    found = await operator.get(f"/releases/{release}/evidence")
    assert [(look["step"], look["candidate_units"], look["control_units"]) for look in found["looks"]] == [
        (10, 3, 7), (11, 5, 7)
    ]  # fmt: skip
    errors, gaps = found["tests"]
    assert (errors["kind"], errors["metric"], errors["candidate"], errors["control"]) == (
        "harm",
        "errors",
        [3, 5],
        [1, 1],
    )
    assert errors["log10_e"] == [0.3, 0.5]
    assert errors["needed_log10"] == pytest.approx(1.69897)
    assert (gaps["candidate"], gaps["needed_log10"]) == ([None, 5], None)


async def test_of_many_looks_some_are_left_out_but_neither_the_last_nor_a_move(people: People) -> None:
    operator = await people.operator()
    release = (await things_of(people, "operator", fresh=True, only=["release_id"]))["release_id"]
    steps = range(10, 1_010)
    await people.database.executemany(
        STEP, [(release, step, "advance" if step == 501 else "observe", verdict(step)) for step in steps]
    )
    found = await operator.get(f"/releases/{release}/evidence")
    shown = [look["step"] for look in found["looks"]]
    assert found["looks_in_all"] == 1_000
    assert 60 < len(shown) <= 121
    assert shown == sorted(shown)
    assert shown[-1] == 1_009
    assert 501 in shown
    assert found["tests"][0]["candidate"] == shown


async def test_a_slice_is_scored_with_an_interval_that_counts_templates(people: People) -> None:
    operator = await people.operator()
    database = people.database
    model = f"scored {id(people)}"
    alike, mixed = [
        await evals_store.queue_run(database, model=model, pool="p", slices={"facts": 40}) for _ in range(2)
    ]
    for seed in range(40):  # of each template all are right or all wrong; then the same share, spread evenly
        await database.execute(ITEM, alike, "facts", seed, f"t{seed // 10}", float(seed < 30))
        await database.execute(ITEM, mixed, "facts", seed, f"t{seed % 4}", float(seed < 30))
    assert (await operator.get(f"/evals/scores?model={model}"))["data"] == [], "they are not done"
    await database.execute("UPDATE evals.runs SET status = 'done', ended_at = now() WHERE model = $1", model)
    by_run = {one["run_id"]: one for one in (await operator.get(f"/evals/scores?model={model}&slice=facts"))["data"]}
    wide, narrow = by_run[str(alike)]["score"], by_run[str(mixed)]["score"]
    assert (wide["value"], wide["pairs"], wide["units"]) == (0.75, 40, 4)
    assert narrow["value"] == 0.75
    assert wide["lower"] < narrow["lower"] < 0.75 < narrow["upper"] < wide["upper"]
    await database.execute(
        "UPDATE evals.run_slices SET forgotten_items = 40, forgotten_score = 20 WHERE run_id = $1", alike
    )
    page = await operator.get(f"/evals/scores?model={model}&limit=1")
    assert page["has_more"]
    rest = await operator.get(f"/evals/scores?model={model}&limit=1&cursor={page['next_cursor']}")
    forgotten = next(one for one in (*page["data"], *rest["data"]) if one["run_id"] == str(alike))
    assert (forgotten["answered"], forgotten["score"]["value"], forgotten["score"]["lower"]) == (80, 0.625, None)
