"""Limits through the admin API: who sets them, what gateways then do, and what the counters say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from uuid import UUID, uuid4

import pytest

from storage.roles import Role
from tests.control.api.people import People
from tests.waiting import eventually


async def made_key(people: People, organization: str = "ours") -> dict[str, Any]:
    client = await people.as_(Role.OWNER, organization)
    project = await client.make(f"/organizations/{people.organizations[organization]}/projects", {"name": uuid4().hex})
    key: dict[str, Any] = await client.make(f"/projects/{project['id']}/keys", {"name": "k"})
    return key


async def test_limits_are_put_read_and_deleted_at_each_level_and_tier(people: People) -> None:
    key = (await made_key(people))["key"]
    owner, operator = await people.as_(Role.OWNER), await people.as_(Role.OWNER, "operator")
    places = [
        (operator, "organization", people.organizations["ours"]),
        (owner, "project", key["project_id"]),
        (owner, "key", key["id"]),
    ]
    for client, level, subject in places:
        path = f"/limits/{level}/{subject}"
        for tier in ("all", "chat", "autocomplete"):
            answer = await client.ask("PUT", f"{path}/{tier}", {"tokens_per_day": 1_000_000_000})
            assert answer.status == 200, answer
            assert (answer.body["level"], answer.body["tier"]) == (level, None if tier == "all" else tier)
            assert answer.body["limits"]["tokens_per_day"] == 1_000_000_000
            assert answer.body["limits"]["max_concurrency"] is None
        rules = (await client.get(path))["data"]
        assert [rule["tier"] for rule in rules] == [None, "autocomplete", "chat"]
        counters = await client.get(f"{path}/counters")
        assert counters["money_counted"] is True
        assert {counter["remaining"] for counter in counters["data"]} == {1_000_000_000}
        for tier in ("all", "chat", "autocomplete"):
            answer = await client.ask("DELETE", f"{path}/{tier}")
            assert answer.status == 200, answer
        assert (await client.get(path))["data"] == []


@pytest.mark.parametrize("rules", ["limits", "priorities"])
async def test_of_two_changes_at_once_the_second_has_replaced_the_first(rules: str, people: People) -> None:
    """Fault: in the audit log, both had replaced the rule before."""
    key, owner = (await made_key(people))["key"], await people.as_(Role.OWNER)
    path, table = f"/{rules}/project/{key['project_id']}/all", f"gateway.{rules}"
    bodies: list[dict[str, object]] = [{"tokens_per_day": number} for number in (1, 2, 3)]
    if rules == "priorities":
        bodies = [{"share": number} for number in (1, 2, 3)]
    assert (await owner.ask("PUT", path, bodies[0])).status == 200
    async with people.database.transaction():
        await people.database.execute(f"SELECT FROM {table} WHERE subject_id = $1 FOR UPDATE", UUID(key["project_id"]))
        changes = [asyncio.create_task(owner.ask("PUT", path, body)) for body in bodies[1:]]
        waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
        await eventually(lambda: _is(people.database.fetchval(waiting), len(changes)))
    assert [(await change).status for change in changes] == [200, 200]
    told = await people.database.fetch(
        "SELECT before, after FROM gateway.audit_log WHERE subject_id = $1 ORDER BY id", key["project_id"]
    )
    *_, put, first, second = [(row["before"], row["after"]) for row in told]
    assert (first[0], second[0]) == (put[1], first[1])


async def _is(found: Awaitable[int], wanted: int) -> bool:
    return await found >= wanted


async def test_everything_that_is_limited_within_an_organization_is_in_one_list(people: People) -> None:
    keys = [(await made_key(people))["key"] for _ in range(2)]
    theirs = (await made_key(people, "theirs"))["key"]
    ours = f"/organizations/{people.organizations['ours']}"
    owner, operator = await people.as_(Role.OWNER), await people.as_(Role.OWNER, "operator")
    for client, path, limits in (
        (operator, f"/limits/organization/{people.organizations['ours']}/all", {"max_concurrency": 1}),
        (owner, f"/limits/project/{keys[0]['project_id']}/chat", {"tokens_per_day": 2}),
        (owner, f"/limits/key/{keys[0]['id']}/all", {"money_micro_per_month": 3}),
        (owner, f"/limits/key/{keys[1]['id']}/autocomplete", {"requests_per_minute": 4}),
        (operator, f"/limits/key/{theirs['id']}/all", {"requests_per_minute": 5}),
    ):
        assert (await client.ask("PUT", path, limits)).status == 200
    own = {
        (str(people.organizations["ours"]), None),
        (keys[0]["project_id"], "chat"),
        (keys[0]["id"], None),
        (keys[1]["id"], "autocomplete"),
    }
    for role in (Role.ADMIN, Role.VIEWER):
        client = await people.as_(role)
        listed = await client.pages(f"{ours}/limits/within?limit=1")
        listed = [rule for rule in listed if (rule["subject_id"], rule["tier"]) in own]  # others are other tests'
        told = [
            (
                *(rule[field] for field in ("level", "name", "subject_id", "project_id", "tier")),
                *(value for value in rule["limits"].values() if value is not None),
            )
            for rule in listed
        ]
        name = (await client.get(ours))["name"]
        project = await client.get(f"/projects/{keys[0]['project_id']}")
        assert told == [
            ("key", "k", keys[1]["id"], keys[1]["project_id"], "autocomplete", 4),
            ("key", "k", keys[0]["id"], project["id"], None, 3),
            ("project", project["name"], project["id"], project["id"], "chat", 2),
            ("organization", name, str(people.organizations["ours"]), None, None, 1),
        ]
        assert [rule["project_name"] for rule in listed[1:]] == [project["name"], project["name"], None]
        of_one = await client.get(f"{ours}/limits/within?project_id={project['id']}")
        assert [rule["level"] for rule in of_one["data"] if (rule["subject_id"], rule["tier"]) in own] == [
            "key",
            "project",
        ]
    assert (await owner.ask("POST", f"/keys/{keys[1]['id']}/revoke")).status == 200
    left = (await owner.get(f"{ours}/limits/within"))["data"]
    assert keys[1]["id"] not in {rule["subject_id"] for rule in left}, "it opens nothing any more"
    assert (await operator.ask("DELETE", f"/limits/organization/{people.organizations['ours']}/all")).status == 200


async def test_what_is_out_of_range_or_unknown_is_named(people: People) -> None:
    key, owner = (await made_key(people))["key"], await people.as_(Role.OWNER)
    path = f"/limits/key/{key['id']}"
    for body, param in (
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"tokens_per_day": 10**13}, "tokens_per_day"),
        ({"money_micro_per_month": -1}, "money_micro_per_month"),
        ({"tokens_per_hour": 5}, "tokens_per_hour"),
    ):
        answer = await owner.ask("PUT", f"{path}/all", body)
        assert (answer.status, answer.body["error"]["param"]) == (400, param)
    assert (await owner.ask("PUT", f"{path}/nightly", {})).status == 404
    wrong = await owner.ask("PUT", f"/limits/team/{key['id']}/all", {})
    assert (wrong.status, wrong.body["error"]["message"]) == (
        404,
        "There is no level 'team': there are: organization, project, key.",
    )


async def test_a_new_limit_holds_within_a_second_and_names_itself(people: People) -> None:
    made = await made_key(people)
    owner, path = await people.as_(Role.OWNER), f"/limits/key/{made['key']['id']}"

    async def ask() -> tuple[int, Any]:
        async with people.session.post(
            f"{people.url}/v1/chat/completions",
            json={"model": "wide", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 40},
            headers={"authorization": f"Bearer {made['secret']}"},
        ) as response:
            return response.status, await response.json()

    status, body = await ask()  # nothing is behind this gateway, and nothing limits
    assert status == 503, body
    await owner.ask("PUT", f"{path}/autocomplete", {"output_tokens_per_minute": 1})
    await owner.ask("PUT", f"{path}/chat", {"output_tokens_per_minute": 39})

    async def refused() -> dict[str, Any] | None:
        """Once the gateway has heard of the limit."""
        status, body = await ask()
        return body if status == 429 else None

    body = await eventually(refused)
    assert body["error"]["code"] == "request_exceeds_limit"
    assert body["error"]["limit"] == {
        "level": "key",
        "subject_id": made["key"]["id"],
        "tier": "chat",
        "counter": "output_tokens_per_minute",
        "limit": 39,
        "remaining": None,
        "requested": 40,
        "frees_in_ms": None,
        "frees_at": None,
    }
