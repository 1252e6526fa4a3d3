"""Class and share through the admin API: who may say what, what is refused and how, and that keys then have it."""

from __future__ import annotations

from typing import Any

from storage.roles import Role
from tests.control.api.people import People
from tests.control.api.test_limits import made_key
from tests.waiting import eventually


async def test_class_and_share_are_put_read_and_deleted_at_each_level_and_tier(people: People) -> None:
    """At the former paths, whose answers name the present ones."""
    key = (await made_key(people))["key"]
    owner, operator = await people.as_(Role.OWNER), await people.as_(Role.OWNER, "operator")
    places = [
        (operator, f"/organizations/{people.organizations['ours']}", "organization", 300),
        (owner, f"/projects/{key['project_id']}", "project", 50),
        (owner, f"/keys/{key['id']}", "key", None),
    ]
    for client, path, level, share in places:
        for tier in ("all", "chat", "autocomplete"):
            answer = await client.ask("PUT", f"{path}/priorities/{tier}", {"service_class": "offline", "share": share})
            assert answer.status == 200, answer
            assert answer.body["level"] == level
            present = f"/admin/v1/priorities/{level}/{answer.body['subject_id']}/{tier}"
            assert answer.headers["link"] == f'<{present}>; rel="successor-version"'
            assert answer.headers["deprecation"].startswith("@")
            assert (answer.body["service_class"], answer.body["share"]) == ("offline", share)
        rules = (await client.get(f"{path}/priorities"))["data"]
        assert [rule["tier"] for rule in rules] == [None, "autocomplete", "chat"]
        assert (await client.ask("PUT", f"{path}/priorities/chat", {})).status == 200
        left = (await client.get(f"{path}/priorities"))["data"]
        assert [rule["tier"] for rule in left] == [None, "autocomplete"], "a rule that says nothing is none"
        for tier in ("all", "autocomplete"):
            assert (await client.ask("DELETE", f"{path}/priorities/{tier}")).status == 200
        assert (await client.get(f"/priorities/{level}/{path.rpartition('/')[2]}"))["data"] == []


async def test_an_organizations_own_class_is_the_deployments_and_within_it_its_owners_lower_theirs(
    people: People,
) -> None:
    key = (await made_key(people))["key"]
    owner, operator = await people.as_(Role.OWNER), await people.as_(Role.OWNER, "operator")
    organization = f"/priorities/organization/{people.organizations['ours']}"
    project, interactive = f"/priorities/project/{key['project_id']}/chat", {"service_class": "interactive"}
    refused = await owner.ask("PUT", project, interactive)
    assert (refused.status, refused.body["error"]["param"]) == (400, "service_class")
    assert (
        "'interactive' is above the class of the organization in the tier chat, 'standard'"
        in refused.body["error"]["message"]
    )
    assert (await operator.ask("PUT", f"{organization}/chat", interactive)).status == 200
    try:
        assert (await owner.ask("PUT", project, interactive)).status == 200
        everywhere = await owner.ask("PUT", f"/priorities/key/{key['id']}/all", interactive)
        assert everywhere.status == 400, "in the other tier the organization is standard"
    finally:
        await operator.ask("DELETE", f"{organization}/chat")


async def test_what_is_out_of_range_or_unknown_is_named(people: People) -> None:
    key, owner = (await made_key(people))["key"], await people.as_(Role.OWNER)
    path = f"/priorities/key/{key['id']}"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"share": 0}, "share"),
        ({"share": 10_001}, "share"),
        ({"share": 50}, "share"),
        ({"service_class": "urgent"}, "service_class"),
        ({"class": "offline"}, "class"),
    ]
    for body, param in refused:
        answer = await owner.ask("PUT", f"{path}/all", body)
        assert (answer.status, answer.body["error"]["param"]) == (400, param)
    assert (await owner.ask("PUT", f"{path}/nightly", {})).status == 404


async def test_a_change_is_audited_with_what_was_before(people: People) -> None:
    key = (await made_key(people))["key"]
    owner, path = await people.as_(Role.OWNER), f"/priorities/key/{key['id']}/all"
    await owner.ask("PUT", path, {"service_class": "offline"})
    await owner.ask("DELETE", path)
    rows = await people.database.fetch(
        "SELECT action, before::text, after::text FROM gateway.audit_log"
        " WHERE subject_id = $1 AND action LIKE 'priorities%' ORDER BY id",
        key["id"],
    )
    assert [row["action"] for row in rows] == ["priorities.put", "priorities.delete"]
    assert "offline" in rows[0]["after"]
    assert "offline" in rows[1]["before"]


async def test_a_key_has_its_class_within_a_second(people: People) -> None:
    made = await made_key(people)
    owner = await people.as_(Role.OWNER)

    async def refused() -> str:
        async with people.session.post(
            f"{people.url}/v1/chat/completions",
            json={"model": "wide", "messages": [{"role": "user", "content": "Hello."}], "service_tier": "priority"},
            headers={"authorization": f"Bearer {made['secret']}"},
        ) as response:
            error = (await response.json())["error"]
            assert (response.status, error["param"]) == (400, "service_tier")
            return str(error["message"])

    assert "is 'standard'" in await refused()
    await owner.ask("PUT", f"/priorities/key/{made['key']['id']}/chat", {"service_class": "offline"})

    async def heard() -> bool:
        return "is 'offline'" in await refused()

    await eventually(heard)
