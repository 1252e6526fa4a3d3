"""Nobody becomes more than they are: by giving roles, by making keys for others, or by leaving nobody in charge."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from storage.roles import PERMISSIONS, Permission, Role, covers
from tests.control.api.people import People


def test_the_owner_may_everything_and_covering_is_an_order() -> None:
    assert PERMISSIONS[Role.OWNER] == frozenset(Permission)
    assert all(covers(Role.OWNER, role) and covers(role, role) for role in Role)
    assert [role for role in Role if covers(role, Role.OWNER)] == [Role.OWNER]
    assert not covers(Role.DEVELOPER, Role.BILLING)
    assert not covers(Role.BILLING, Role.DEVELOPER)


@pytest.mark.parametrize("kind", ["members", "service-accounts"])
async def test_an_admin_makes_no_owner_and_no_owners_key(kind: str, people: People) -> None:
    admin, ours = await people.as_(Role.ADMIN), people.organizations["ours"]
    owner = await people.owner()
    new = {"name": uuid4().hex, "role": "owner"} | ({"email": f"{uuid4()}@x.io"} if kind == "members" else {})
    assert (await admin.ask("POST", f"/organizations/{ours}/{kind}", new)).status == 403
    made = await owner.make(f"/organizations/{ours}/{kind}", new)
    path = f"/{kind}/{made['id']}"
    assert (await admin.ask("PATCH", path, {"role": "viewer"})).status == 403
    assert (await admin.ask("DELETE", path)).status == 403
    keys = f"/organizations/{ours}/admin-keys"
    assert (await admin.ask("POST", keys, {"principal_id": made["id"], "name": "k"})).status == 403
    key = await owner.make(keys, {"principal_id": made["id"], "name": "k"})
    for verb, body in (("rotate", {}), ("revoke", None)):
        assert (await admin.ask("POST", f"/admin-keys/{key['key']['id']}/{verb}", body)).status == 403
    assert (await owner.change(path, {"role": "developer"}))["role"] == "developer"
    assert (await admin.change(path, {"role": "viewer"}))["role"] == "viewer"
    assert (await admin.ask("PATCH", path, {"role": "owner"})).status == 403


@pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN])
async def test_nobody_gets_a_key_that_acts_as_another_person(role: Role, people: People) -> None:
    """Or the audit log would name somebody who did nothing. Owners and the operator are no exception."""
    ours, victim = people.organizations["ours"], await people.principal("ours", role)
    theirs = people.with_secret(await people.key_of(victim))
    key_id = (await theirs.get("/me"))["key_id"]
    keys = f"/organizations/{ours}/admin-keys"
    for other in (await people.owner(), await people.as_(role), await people.operator()):
        answer = await other.ask("POST", keys, {"principal_id": victim, "name": "k"})
        assert (answer.status, answer.body["error"]["param"]) == (403, "principal_id")
        assert (await other.ask("POST", f"/admin-keys/{key_id}/rotate", {})).status == 403
    assert (await theirs.make(keys, {"principal_id": victim, "name": "mine"}))["key"]["principal_id"] == str(victim)
    assert (await (await people.owner()).ask("POST", f"/admin-keys/{key_id}/revoke")).status == 200
    again = await (await people.owner()).ask("POST", keys, {"principal_id": victim, "name": "k"})
    assert again.status == 403  # a revoked key was one, too


async def test_a_new_member_gets_in_by_one_first_key_that_only_they_keep(people: People) -> None:
    owner, ours = await people.owner(), people.organizations["ours"]
    new = {"email": f"{uuid4()}@x.io", "name": "new", "role": "viewer"}
    member = await owner.make(f"/organizations/{ours}/members", new)
    body = {"principal_id": member["id"], "name": "first"}
    answers = await asyncio.gather(*(owner.ask("POST", f"/organizations/{ours}/admin-keys", body) for _ in range(5)))
    assert sorted(answer.status for answer in answers) == [201, 403, 403, 403, 403]
    (first,) = [answer.body for answer in answers if answer.status == 201]
    invited = people.with_secret(first["secret"])
    own = await invited.make(f"/admin-keys/{first['key']['id']}/rotate", {"overlap_s": 0})
    assert (await invited.ask("GET", "/me")).status == 401  # what the inviter knows
    assert (await people.with_secret(own["secret"]).get("/me"))["id"] == member["id"]


async def test_a_service_accounts_keys_are_made_and_rotated_by_who_runs_it(people: People) -> None:
    owner, ours = await people.owner(), people.organizations["ours"]
    account = await owner.make(f"/organizations/{ours}/service-accounts", {"name": uuid4().hex, "role": "viewer"})
    for name in ("one", "two"):
        made = await owner.make(f"/organizations/{ours}/admin-keys", {"principal_id": account["id"], "name": name})
    await owner.make(f"/admin-keys/{made['key']['id']}/rotate", {})
    developer = await people.as_(Role.DEVELOPER)
    assert (await developer.ask("POST", f"/admin-keys/{made['key']['id']}/rotate", {})).status == 403


async def test_a_key_for_somebody_of_another_organization_is_not_made(people: People) -> None:
    owner, stranger = await people.owner(), await people.principal("theirs", Role.VIEWER)
    answer = await owner.ask(
        "POST", f"/organizations/{people.organizations['ours']}/admin-keys", {"principal_id": stranger, "name": "k"}
    )
    assert (answer.status, answer.body["error"]["param"]) == (400, "principal_id")


async def test_the_last_owner_stays_even_when_two_leave_at_once(people: People) -> None:
    operator = await people.operator()
    organization = await operator.make("/organizations", {"name": uuid4().hex})
    owners = [
        await operator.make(
            f"/organizations/{organization['id']}/members", {"email": f"{name}@x.io", "name": name, "role": "owner"}
        )
        for name in ("a", "b")
    ]
    answers = await asyncio.gather(
        operator.ask("DELETE", f"/members/{owners[0]['id']}"),
        operator.ask("PATCH", f"/members/{owners[1]['id']}", {"role": "viewer"}),
    )
    assert sorted(answer.status for answer in answers) == [200, 409]
    left = await operator.get(f"/organizations/{organization['id']}/members?role=owner&disabled=false")
    assert len(left["data"]) == 1
    for method, body in (("DELETE", None), ("PATCH", {"disabled": True}), ("PATCH", {"role": "admin"})):
        answer = await operator.ask(method, f"/members/{left['data'][0]['id']}", body)
        assert (answer.status, answer.body["error"]["code"]) == (409, "conflict")


async def test_a_role_that_changes_and_a_member_who_goes_count_at_once(people: People) -> None:
    owner, member = await people.owner(), await people.principal("ours", Role.ADMIN)
    theirs = people.with_secret(await people.key_of(member))
    projects = f"/organizations/{people.organizations['ours']}/projects"
    await theirs.make(projects, {"name": uuid4().hex})
    await owner.change(f"/members/{member}", {"role": "viewer"})
    assert (await theirs.ask("POST", projects, {"name": uuid4().hex})).status == 403
    await owner.change(f"/members/{member}", {"disabled": True})
    assert (await theirs.ask("GET", "/me")).body["error"]["code"] == "tenant_disabled"
    assert (await owner.ask("DELETE", f"/members/{member}")).status == 200
    assert (await theirs.ask("GET", "/me")).body["error"]["code"] == "invalid_api_key"


async def test_an_admin_key_rotates_with_two_live_secrets(people: People) -> None:
    """By its member, whatever the role."""
    old = people.with_secret(await people.key_of(await people.principal("ours", Role.VIEWER)))
    key_id = (await old.get("/me"))["key_id"]
    new = people.with_secret((await old.make(f"/admin-keys/{key_id}/rotate", {"overlap_s": 3600}))["secret"])
    assert (await old.get("/me"))["id"] == (await new.get("/me"))["id"]
    last = await new.make(f"/admin-keys/{key_id}/rotate", {"overlap_s": 0, "end_previous": True})
    for client, code in ((old, "invalid_api_key"), (new, "expired_api_key")):
        assert (await client.ask("GET", "/me")).body["error"]["code"] == code
    assert (await people.with_secret(last["secret"]).get("/me"))["key_id"] == key_id
