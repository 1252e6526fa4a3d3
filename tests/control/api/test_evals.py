"""A run or a comparison of what the fleet has not is refused when it is asked for, by its field, and is not queued."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control.api.people import People

RUN = {"model": "wide", "slices": ["facts"]}
COMPARISON = {**RUN, "baseline_pool": "one", "candidate_pool": "one"}
QUEUED = "SELECT (SELECT count(*) FROM evals.runs) + (SELECT count(*) FROM evals.comparisons)"


@pytest.mark.parametrize(
    ("path", "body", "param", "said"),
    [
        ("/evals/runs", {**RUN, "model": "tall"}, "model", "There is no model 'tall'; models: "),
        ("/evals/runs", {**RUN, "pool": "two"}, "pool", "There is no pool 'two'; pools: "),
        ("/evals/comparisons", {**COMPARISON, "model": "tall"}, "model", "There is no model 'tall'"),
        ("/evals/comparisons", {**COMPARISON, "baseline_pool": "two"}, "baseline_pool", "There is no pool 'two'"),
        ("/evals/comparisons", {**COMPARISON, "candidate_pool": "two"}, "candidate_pool", "There is no pool 'two'"),
    ],
)
async def test_what_the_fleet_has_not_is_refused(
    people: People, path: str, body: dict[str, Any], param: str, said: str
) -> None:
    operator = await people.operator()
    before = await people.database.fetchval(QUEUED)
    answer = await operator.ask("POST", path, body)
    assert (answer.status, answer.body["error"]["param"]) == (400, param)
    assert said in answer.body["error"]["message"]
    assert await people.database.fetchval(QUEUED) == before


async def test_what_it_has_is_queued(people: People) -> None:
    before = await people.database.fetchval(QUEUED)
    await (await people.operator()).make("/evals/runs", {**RUN, "pool": "one"})
    assert await people.database.fetchval(QUEUED) == before + 1
