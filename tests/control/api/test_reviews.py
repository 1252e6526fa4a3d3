"""Reviews: blind, one vote for each reviewer and pair, and coins of sessions for the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from control.shadow.reviewing import Coins, coins
from storage.engine import lazy_pool
from storage.roles import Role
from tests.control.api.examples import things_of
from tests.control.api.people import Client, People
from tests.gateway.shadow.pairs import pair, project, store_on, texts


@pytest.fixture
async def pool(people: People, admin_postgres_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    pool = await lazy_pool(admin_postgres_url, size=3, connect_timeout_s=5)
    for table in ("reviews", "review_coins", "shadow_pairs"):
        await pool.execute(f"DELETE FROM gateway.{table}")
    yield pool
    for table in ("reviews", "review_coins", "shadow_pairs"):
        await pool.execute(f"DELETE FROM gateway.{table}")
    pool.terminate()


async def stored(pool: asyncpg.Pool[Any], count: int, **fields: Any) -> str:
    """So many reviews, each of another session, of a project, whose id is given."""
    store, whose = store_on(pool), await project(pool)
    for number in range(count):
        store.add(pair(**{"unit": number + 1, **fields}), texts(whose, prompt=f"user: {number}"))
    await store.flush()
    return whose


async def next_of(client: Client, query: str = "") -> tuple[dict[str, Any] | None, int]:
    answer = await client.ask("GET", f"/reviews/next{query}")
    assert answer.status == 200, answer
    return answer.body["review"], answer.body["waiting"]


async def voted(client: Client, review_id: str, choice: str, status: int = 201) -> dict[str, Any]:
    answer = await client.ask("POST", f"/reviews/{review_id}/votes", {"choice": choice})
    assert answer.status == status, answer
    body: dict[str, Any] = answer.body
    return body


async def shown(client: Client) -> tuple[dict[str, Any], int]:
    """The next review, which there is, and how many wait."""
    review, waiting = await next_of(client)
    assert review is not None
    return review, waiting


async def prefer(client: Client, text: str) -> None:
    """Vote for the side of the next review that has the text."""
    review, _ = await shown(client)
    await voted(client, review["id"], "left" if review["left"] == text else "right")


async def test_a_pair_is_shown_blind_and_told_once_it_is_voted_on(people: People, pool: asyncpg.Pool[Any]) -> None:
    await stored(pool, 40)
    operator = await people.operator()
    sides: Counter[str] = Counter()
    for number in range(40):
        review, waiting = await shown(operator)
        assert waiting == 40 - number
        assert review.keys() == {"id", "model", "release", "prompt", "left", "right", "votes", "recorded_at"}
        assert {review["left"], review["right"]} == {"old", "new"}
        told = await voted(operator, review["id"], "left")
        assert review[told["candidate"]] == "new"
        sides[told["candidate"]] += 1
    assert await next_of(operator) == (None, 0)
    assert min(sides["left"], sides["right"]) >= 5, "drawn, not always the same"


async def test_each_reviewer_votes_once_and_pairs_with_few_votes_come_first(
    people: People, pool: asyncpg.Pool[Any]
) -> None:
    await stored(pool, 2)
    one, other = await people.operator(), await people.as_(Role.ADMIN, "operator")
    first, _ = await shown(one)
    await voted(one, first["id"], "both")
    assert "once" not in (await voted(one, first["id"], "left", status=409))["error"]["message"]
    second, waiting = await shown(other)
    assert (second["id"] != first["id"], waiting) == (True, 2)
    await voted(other, second["id"], "skip")
    again, _ = await shown(other)
    assert (again["id"], again["votes"]) == (first["id"], 1)


async def test_votes_are_summed_by_the_stage_that_their_copies_are_of(people: People, pool: asyncpg.Pool[Any]) -> None:
    await stored(pool, 1, unit=1, stage_share=0.0)
    await stored(pool, 2, stage_share=0.25)
    operator = await people.operator()
    for wanted in ("new", "old", "new"):  # the second is of the first one's session
        await prefer(operator, wanted)
    sums = (await operator.ask("GET", "/reviews?release=r1")).body["data"]
    assert [
        (each["stage_share"], each["reviews"], each["better"], each["worse"], each["preferred"]["units"])
        for each in sums
    ] == [(0.25, 2, 1, 1, 1), (0.0, 1, 1, 0, 1)]


async def test_votes_are_summed_and_a_sessions_first_decisive_one_is_its_coin(
    people: People, pool: asyncpg.Pool[Any]
) -> None:
    await stored(pool, 1, unit=1)
    await stored(pool, 1, unit=1)
    await stored(pool, 1, unit=2)
    await stored(pool, 1, unit=3, release="")
    operator, other = await people.operator(), await people.as_(Role.ADMIN, "operator")
    for wanted in ("new", "old", "new", "new"):  # the second is of the first one's session
        await prefer(operator, wanted)
    review, _ = await shown(other)
    await voted(other, review["id"], "neither")
    async with pool.acquire() as connection:
        assert await coins(connection, "r1") == Coins(worse=0, better=2)
        assert await coins(connection, "") == Coins(worse=0, better=0)
    found = {each["release"]: each for each in (await operator.ask("GET", "/reviews")).body["data"]}
    of = found["r1"]
    assert (of["reviews"], of["waiting"], of["better"], of["worse"], of["neither"]) == (3, 3, 2, 1, 1)
    assert (of["preferred"]["value"], of["preferred"]["units"]) == (1.0, 2)
    assert found[""]["better"] == 1


async def test_what_is_no_longer_stored_is_no_longer_shown(people: People, pool: asyncpg.Pool[Any]) -> None:
    whose = await stored(pool, 2)
    operator = await people.operator()
    review, _ = await shown(operator)
    await voted(operator, review["id"], "left")
    left, _ = await shown(operator)
    await pool.execute("UPDATE gateway.projects SET allow_reviews = false WHERE id = $1", whose)
    assert await next_of(operator) == (None, 0)
    await voted(operator, left["id"], "left", status=404)
    async with pool.acquire() as connection:
        assert sum(await coins(connection, "r1")) == 1, "what was voted stays"


async def test_filters_and_numbers_of_pairs(people: People, pool: asyncpg.Pool[Any]) -> None:
    await stored(pool, 3)
    await stored(pool, 1, release="r2")
    operator = await people.operator()
    assert (await next_of(operator, "?release=r2"))[1] == 1
    assert await next_of(operator, "?model=other") == (None, 0)
    data = (await operator.ask("GET", "/shadow?release=r1")).body["data"]
    assert [(each["release"], each["pairs"], each["same_text"]["value"]) for each in data] == [("r1", 3, 1.0)]
    assert (
        await operator.ask("POST", f"/reviews/{'0' * 8}-0000-0000-0000-{'0' * 12}/votes", {"choice": "left"})
    ).status == 404


async def test_a_projects_own_people_alone_let_it_be_reviewed(people: People, pool: asyncpg.Pool[Any]) -> None:
    project_id = (await things_of(people, "ours", fresh=True, only=["project_id"]))["project_id"]
    path, operator = f"/projects/{project_id}", await people.operator()
    own = await people.as_(Role.ADMIN)
    assert (await own.get(path))["allow_reviews"] is False
    assert (await operator.ask("PATCH", path, {"allow_reviews": True})).status == 403
    assert (await own.change(path, {"allow_reviews": True}))["allow_reviews"] is True
    assert (await operator.change(path, {"allow_reviews": False}))["allow_reviews"] is False
