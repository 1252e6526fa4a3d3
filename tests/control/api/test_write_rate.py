"""An organization's changes have a rate, its objects a limit, and the log keeps long texts as digests."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from contracts.errors import Conflict, RateLimited
from control.api.config import AdminConfig, MostObjects
from control.api.principal import Principal
from control.api.write_rate import WriteRate
from control.tenants.admin_keys import NewAdminKey
from control.tenants.keys import KeyChanges, NewKey
from control.tenants.members import NewMember
from control.tenants.projects import NewProject, ProjectChanges
from control.tenants.service_accounts import NewServiceAccount
from control.webhooks.webhooks import NewWebhook
from storage.roles import Role
from tests.control.api.people import Client, People
from tests.control.api.principals import principal
from tests.control.api.test_read_places import BY_NAME, Gateway, gateway


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def changes(rate: WriteRate, whose: Principal, asked: int) -> int:
    for number in range(asked):
        try:
            rate.take(whose)
        except RateLimited:
            return number
    return asked


def test_a_burst_then_so_many_a_second_of_each_organization() -> None:
    clock = Clock()
    rate = WriteRate(5.0, 20_000, clock)
    assert changes(rate, principal(1), 1_000) == 50
    with pytest.raises(RateLimited, match=r"more than 5 changes a second.*organization_writes_per_second") as refused:
        rate.take(principal(1))
    assert refused.value.retry_after_s == pytest.approx(0.2)
    assert changes(rate, principal(2), 1_000) == 50
    assert changes(rate, principal(1, operator=True), 1_000) == 1_000
    clock.now_s = 2.0
    assert changes(rate, principal(1), 1_000) == 10


def test_a_day_of_changes_bounds_what_is_added_to_the_audit_log() -> None:
    clock = Clock()
    rate = WriteRate(5.0, 1_000, clock)
    taken = 0
    for _ in range(86_400 // 10):
        taken += changes(rate, principal(1), 100)
        clock.now_s += 10.0
    assert 1_900 < taken <= 2_000  # the day's, and what came back during it
    changes(rate, principal(1), 50)
    with pytest.raises(RateLimited, match=r"1000 changes within a day.*organization_writes_per_day"):
        rate.take(principal(1))


def test_members_sign_in_while_their_organization_has_used_up_its_rate() -> None:
    rate = WriteRate(5.0, 20_000, Clock())
    changes(rate, principal(1), 1_000)
    for _ in range(50):
        rate.take_of_member(principal(1, number=7))
    with pytest.raises(RateLimited, match="You have made"):
        rate.take_of_member(principal(1, number=7))
    rate.take_of_member(principal(1, number=8))


async def test_changes_are_counted_where_the_key_is_and_reads_are_not(people: People, admin_postgres_url: str) -> None:
    """Fault: no rate at all."""
    owner, viewer = await people.as_(Role.OWNER), await people.as_(Role.VIEWER)
    config = AdminConfig(organization_writes_per_second=0.5)
    async with gateway(admin_postgres_url, people, config) as asked:
        asked.api.writes._of_second._clock = Clock()  # a change comes back after 2 s, which five may take
        change = BY_NAME["update_project"]
        for _ in range(5):
            await asked.api.admit(change, owner.secret)
        with pytest.raises(RateLimited) as refused:
            await asked.api.admit(change, owner.secret)
        assert refused.value.retry_after_s
        await asked.api.admit(BY_NAME["list_projects"], viewer.secret)
        other = await people.as_(Role.OWNER)
        for removal in ("revoke_admin_key", "revoke_key", "delete_member", "delete_service_account"):
            await asked.api.admit(BY_NAME[removal], other.secret)
        await asked.api.admit(BY_NAME["revoke_admin_key"], other.secret)
        with pytest.raises(RateLimited, match="You have made"):
            await asked.api.admit(BY_NAME["revoke_admin_key"], other.secret)
        await asked.api.admit(change, (await people.as_(Role.OWNER, "theirs")).secret)
        await asked.api.admit(change, (await people.operator()).secret)


async def test_an_organization_has_so_many_of_each_kind(people: People, admin_postgres_url: str) -> None:
    """Fault: nothing but webhooks was counted."""
    operator = await people.operator()
    one = MostObjects(projects=1, keys=1, members=1, service_accounts=1, admin_keys=1, webhooks=1)
    async with gateway(admin_postgres_url, people, AdminConfig(most=one)) as asked:
        made = await operator.make("/organizations", {"name": "counted"})
        organization_id = UUID(made["id"])

        async def make(name: str, body: object, **path: UUID) -> Any:
            answer = await asked.ask(name, operator, body, **(path or {"organization_id": organization_id}))
            return msgspec.json.decode(answer.body)

        project = UUID((await make("create_project", NewProject(name="p")))["id"])
        account = UUID((await make("create_service_account", NewServiceAccount(name="a", role=Role.VIEWER)))["id"])
        await make("create_member", NewMember(email="a@counted.example", name="a", role=Role.OWNER))
        await make("create_webhook", NewWebhook(url="https://example.com/hook"))
        await make("create_admin_key", NewAdminKey(principal_id=account, name="k"))
        key = UUID((await make("create_key", NewKey(name="k"), project_id=project))["key"]["id"])
        for name, body, path, told in (
            ("create_project", NewProject(name="q"), {}, r"at most 1 projects .*most\.projects.*disable one first"),
            ("create_service_account", NewServiceAccount(name="b", role=Role.VIEWER), {}, r"most\.service_accounts"),
            ("create_member", NewMember(email="b@counted.example", name="b", role=Role.OWNER), {}, r"most\.members"),
            ("create_webhook", NewWebhook(url="https://example.com/hook"), {}, r"most\.webhooks.*delete one"),
            ("create_admin_key", NewAdminKey(principal_id=account, name="l"), {}, r"most\.admin_keys.*revoke one"),
            ("create_key", NewKey(name="l"), {"project_id": project}, r"at most 1 API keys that are active"),
        ):
            with pytest.raises(Conflict, match=told):
                await make(name, body, **path)
        await _room_is_made_and_taken(asked, operator, organization_id, project, key, people)


async def _room_is_made_and_taken(
    asked: Gateway, operator: Client, organization_id: UUID, project: UUID, key: UUID, people: People
) -> None:
    expired = datetime.now(UTC) - timedelta(days=1)
    await people.database.execute("UPDATE gateway.api_keys SET expires_at = $2 WHERE id = $1", key, expired)
    await asked.ask("create_key", operator, NewKey(name="l"), project_id=project)
    with pytest.raises(Conflict, match="API keys that are active"):
        await asked.ask("update_key", operator, KeyChanges(expires_at=None), key_id=key)
    await asked.ask("update_project", operator, ProjectChanges(disabled=True), project_id=project)
    await asked.ask("create_project", operator, NewProject(name="q"), organization_id=organization_id)
    with pytest.raises(Conflict, match="projects that are enabled"):
        await asked.ask("update_project", operator, ProjectChanges(disabled=False), project_id=project)


async def test_a_long_text_of_a_tenant_stands_in_the_log_by_its_digest(people: People) -> None:
    """Fault: 8 kB of the log for each change of a description."""
    owner, organization = await people.owner(), people.organizations["ours"]
    text = "".join(chr(0x20000 + number) for number in range(1_000))
    made = await owner.make(
        f"/organizations/{organization}/webhooks", {"url": "https://example.com/hook", "description": text}
    )
    logged = await people.database.fetchval(
        "SELECT after::text FROM gateway.audit_log WHERE subject_id = $1", made["webhook"]["id"]
    )
    after = msgspec.json.decode(logged)
    assert after["description"] == f"(1,000 characters, SHA-256 {hashlib.sha256(text.encode()).hexdigest()})"
    assert after["url"] == "https://example.com/hook"
    assert made["webhook"]["description"] == text
    assert len(logged) < 1_000
