"""What a key may use: scopes, the project's models and tiers, disabled tenants, rotation; and what is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from contracts.dated_request_id import mint
from storage.roles import Role
from tests.control.api.lone_gateway import LoneGateway
from tests.control.api.people import People
from tests.gateway.slow_platform import SlowPlatform
from tests.waiting import GUARD_S, eventually


class Tenant:
    """A project of `ours` with one key, and inference asked with it. The gateway has no engine: what is let in ends
    with 503."""

    def __init__(self, people: People, project: dict[str, Any], made: dict[str, Any]) -> None:
        self.people = people
        self.project = project
        self.key = made["key"]
        self.secret = made["secret"]

    async def ask(self, model: str = "wide", *, secret: str = "", url: str = "") -> tuple[int, dict[str, Any], str]:
        """Status, error and request id."""
        chat = model not in ("narrow",)
        body = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
        async with self.people.session.post(
            f"{url or self.people.url}/v1/{'chat/' if chat else ''}completions",
            json={"model": model, "max_tokens": 8, **body},
            headers={"authorization": f"Bearer {secret or self.secret}", "x-client-request-id": "mine"},
        ) as response:
            answer = await response.json()
            return response.status, answer.get("error", {}), response.headers["x-request-id"]

    async def models(self, name: str = "", *, secret: str = "", url: str = "") -> tuple[int, Any]:
        async with self.people.session.get(
            f"{url or self.people.url}/v1/models{name}", headers={"authorization": f"Bearer {secret or self.secret}"}
        ) as response:
            return response.status, await response.json()

    async def until(self, status: int, **where: str) -> None:
        async def answered_so() -> bool:
            return (await self.models(**where))[0] == status

        await eventually(answered_so)

    async def record(self, request_id: str) -> dict[str, Any]:
        """What the admin API knows of a request, once it does."""
        owner = await self.people.owner()

        async def found() -> dict[str, Any] | None:
            answer = await owner.ask("GET", f"/requests/{request_id}")
            return None if answer.status == 404 else answer.body

        return await eventually(found)


@pytest.fixture
async def tenant(people: People) -> Tenant:
    owner = await people.owner()
    project = await owner.make(f"/organizations/{people.organizations['ours']}/projects", {"name": uuid4().hex})
    return Tenant(people, project, await owner.make(f"/projects/{project['id']}/keys", {"name": "k"}))


async def test_an_admin_key_opens_no_inference(tenant: Tenant) -> None:
    admin = (await tenant.people.owner()).secret
    for status, error in (
        (await tenant.ask(secret=admin))[:2],
        (lambda answer: (answer[0], answer[1]["error"]))(await tenant.models(secret=admin)),
    ):
        assert (status, error["code"]) == (401, "wrong_key_kind")


async def test_a_project_uses_the_models_and_tiers_it_was_given(tenant: Tenant) -> None:
    owner, path = await tenant.people.owner(), f"/projects/{tenant.project['id']}"
    assert (await tenant.ask())[0] == (await tenant.ask("narrow"))[0] == 503
    await owner.change(path, {"models": ["narrow"]})

    async def refused() -> bool:
        return (await tenant.ask())[0] == 403

    await eventually(refused)
    for name in ("wide", "broad"):  # by an alias, too
        status, error, request_id = await tenant.ask(name)
        assert (status, error["code"], error["param"]) == (403, "model_access_denied", "model")
        assert error["type"] == "invalid_request_error"
        assert f"does not have access to model '{name}'" in error["message"]
        assert error["message"].endswith(". It may use: narrow.")
        assert tenant.project["id"] in error["message"]
    status, error, _ = await tenant.ask("wid")
    assert (status, error["message"]) == (404, "The model 'wid' does not exist. Available: narrow.")
    assert (await tenant.ask("narrow"))[0] == 503
    assert [model["id"] for model in (await tenant.models())[1]["data"]] == ["narrow"]
    assert (await tenant.models("/wide"))[0] == 403
    assert (await tenant.models("/narrow"))[0] == 200
    record = await tenant.record(request_id)
    assert (record["decision"], record["status"], record["model"]) == ("refused", 403, "broad")
    assert "does not have access" in record["reason"]
    assert record["client_request_id"] == "mine"

    await owner.change(path, {"models": None, "tiers": ["chat"]})
    await tenant.until(403, name="/narrow")
    assert "tier 'autocomplete'" in (await tenant.ask("narrow"))[1]["message"]
    assert (await tenant.ask())[0] == 503


async def test_a_key_opens_what_its_scopes_name(tenant: Tenant) -> None:
    owner = await tenant.people.owner()
    made = await owner.make(f"/projects/{tenant.project['id']}/keys", {"name": "k", "scopes": ["completions"]})
    secret = made["secret"]
    status, error, _ = await tenant.ask(secret=secret)
    assert (status, error["code"]) == (403, "insufficient_scope")
    assert "lacks the scope 'chat'; it has: completions" in error["message"]
    assert (await tenant.models(secret=secret))[0] == 403
    assert (await tenant.ask("narrow", secret=secret))[0] == 503


async def test_both_secrets_open_until_the_overlap_ends(tenant: Tenant) -> None:
    owner, old = await tenant.people.owner(), tenant.secret
    path = f"/keys/{tenant.key['id']}/rotate"
    new = (await owner.make(path, {"overlap_s": 3600}))["secret"]
    for secret in (old, new):
        assert (await tenant.models(secret=secret))[0] == 200
    third = await owner.ask("POST", path, {})
    assert (third.status, third.body["error"]["param"]) == (409, "end_previous")
    last = (await owner.make(path, {"overlap_s": 0, "end_previous": True}))["secret"]
    await tenant.until(401, secret=old)
    await tenant.until(401, secret=new)
    assert (await tenant.models(secret=last))[0] == 200
    assert (await tenant.models(secret=new))[1]["error"]["code"] == "expired_api_key"
    ended = datetime.fromisoformat((await owner.get(f"/keys/{tenant.key['id']}"))["previous_expires_at"])
    assert ended < datetime.now(UTC) - timedelta(hours=1), "a gateway whose clock is behind would let it in until then"
    assert (await owner.ask("POST", f"/keys/{tenant.key['id']}/revoke")).status == 200
    await tenant.until(401, secret=last)
    revoked = await owner.ask("POST", path, {})
    assert (revoked.status, revoked.body["error"]["code"]) == (409, "conflict")


async def test_the_overlap_ends_in_memory_too(tenant: Tenant) -> None:
    """No announcement comes when it ends: the gateway looks at its own clock."""
    owner, old = await tenant.people.owner(), tenant.secret
    await owner.make(f"/keys/{tenant.key['id']}/rotate", {"overlap_s": 1})
    await tenant.until(401, secret=old)


async def test_refusals_are_recorded_with_who_and_why(tenant: Tenant) -> None:
    owner = await tenant.people.owner()
    _, _, unknown_model = await tenant.ask("no-such-model")
    _, _, admitted = await tenant.ask()
    await owner.ask("POST", f"/keys/{tenant.key['id']}/revoke")
    await tenant.until(401)
    status, _, revoked = await tenant.ask()
    assert status == 401
    expected = {
        unknown_model: (404, "model_not_found", "refused"),
        admitted: (503, "router_unavailable", "failed"),
        revoked: (401, "revoked_api_key", "refused"),
    }
    for request_id, (status, code, decision) in expected.items():
        record = await tenant.record(request_id)
        assert (record["status"], record["error_code"], record["decision"]) == (status, code, decision)
        assert (record["project_id"], record["key_id"]) == (tenant.project["id"], tenant.key["id"])
        assert record["phases_ms"]
        assert record["reason"]
    listed = await owner.get(f"/organizations/{tenant.people.organizations['ours']}/requests?key_id={tenant.key['id']}")
    assert [each["request_id"] for each in listed["data"]] == [revoked, admitted, unknown_model]


async def test_a_request_refused_by_a_limit_names_rule_and_counters(tenant: Tenant) -> None:
    await tenant.people.database.execute(
        "INSERT INTO gateway.limits (level, subject_id, requests_per_minute) VALUES ('project', $1, 1)",
        tenant.project["id"],
    )

    async def refused() -> list[tuple[int, dict[str, Any], str]]:
        """Of several at once: a request that finds no engine is given back."""
        return [answer for answer in await asyncio.gather(*(tenant.ask() for _ in range(8))) if answer[0] == 429]

    _, error, request_id = (await eventually(refused))[0]
    record = await tenant.record(request_id)
    assert (record["decision"], record["error_code"]) == ("refused", "rate_limit_exceeded")
    assert record["reason"] == error["message"]
    assert record["rule"]["level"] == "project"
    assert record["rule"]["subject_id"] == tenant.project["id"]
    assert record["rule"]["counter"] == "requests_per_minute"
    assert record["rule"]["frees_in_ms"] > 0
    (counter,) = record["counters"]
    assert (counter["counter"], counter["limit"], counter["remaining"]) == ("requests_per_minute", 1, 0)
    assert record["attempts"] == []


async def test_a_served_request_shows_engine_tokens_phases_and_cost(platform: SlowPlatform) -> None:
    database = await asyncpg.connect(platform.database_url)
    there = People(platform.session, platform.url, database, platform.pepper)
    await there.move_in()
    operator = await there.operator()
    seen = await platform.ask("wide", tokens=5)
    await platform.charge(seen.request_id)
    await platform.trace(seen.request_id)
    record = await operator.get(f"/requests/{seen.request_id}")
    assert (record["decision"], record["status"], record["error_code"]) == ("served", 200, None)
    assert record["rule"] is record["reason"] is None
    assert (record["model"], record["tier"], record["endpoint"]) == ("wide", "chat", "chat")
    assert record["phases_ms"].keys() >= {"auth", "limit", "route"}
    assert abs(sum(record["phases_ms"].values()) - record["total_ms"]) < 1
    latency = record["latency"]
    assert (latency["pool"], latency["replica_id"], latency["canary"]) == ("wide", "wide-1", False)
    assert (latency["completion_tokens"], latency["length"], latency["attempts"]) == (5, "short", 1)
    assert 0 < latency["ttft_ms"] <= record["total_ms"]
    assert latency["client_stall_ms"] == 0
    (attempt,) = record["attempts"]
    assert (attempt["engine"], attempt["billed"], attempt["completion_tokens"]) == ("wide-1", True, 5)
    assert record["amount_micro"] == attempt["amount_micro"]
    await database.close()


@pytest.mark.parametrize(
    ("status", "code", "ttft_ms", "decision"),
    [
        (200, None, 5, "served"),
        (200, None, None, "served"),
        (200, "superseded", None, "served"),
        (200, "client_gone", 5, "served"),
        (200, "client_gone", None, "abandoned"),
        (499, "client_gone", None, "abandoned"),
        (200, "overloaded", None, "failed"),
        (200, "engine_failed", 5, "failed"),
        (200, "invalid_value", None, "refused"),
        (400, "invalid_value", None, "refused"),
        (503, "overloaded", None, "failed"),
    ],
)
async def test_the_outcome_of_a_stream_is_its_error_after_its_status(
    people: People, status: int, code: str | None, ttft_ms: float | None, decision: str
) -> None:
    viewer, request_id = await people.as_(Role.VIEWER), mint()
    await people.database.execute(
        """INSERT INTO gateway.request_traces
           (request_id, organization_id, status, error_code, ttft_ms, total_ms, phases_ms)
           VALUES ($1, $2, $3, $4, $5, 10, '{}')""",
        request_id, people.organizations["ours"], status, code, ttft_ms,
    )  # fmt: skip
    assert (await viewer.get(f"/requests/{request_id}"))["decision"] == decision


async def test_where_a_request_ran_is_told_to_the_operating_organization_alone(people: People) -> None:
    """Who can look up its sessions' sides chooses what a release's candidate is judged by."""
    viewer, operator, ours = await people.as_(Role.VIEWER), await people.operator(), people.organizations["ours"]
    request_id, release = mint(), str(uuid4())
    await people.database.execute(
        """INSERT INTO gateway.request_traces (request_id, organization_id, status, total_ms, phases_ms, model, tier,
           pool, replica_id, canary, side, release, unit, ttft_ms, attempts)
           VALUES ($1, $2, 200, 10, '{}', 'm', 'chat', 'new', 'new-0', true, 'candidate', $3, 7, 5, 1)""",
        request_id, ours, release,
    )  # fmt: skip
    names = ("pool", "replica_id", "canary", "side", "release")
    seen = (await viewer.get(f"/requests/{request_id}"))["latency"]
    assert [seen[name] for name in names] == [None] * 5
    assert (seen["ttft_ms"], seen["attempts"]) == (5, 1)
    seen = (await operator.get(f"/requests/{request_id}"))["latency"]
    assert [seen[name] for name in names] == ["new", "new-0", True, "candidate", release]


async def test_a_disabled_project_or_organization_is_refused_by_every_gateway(
    tenant: Tenant, other_gateway: LoneGateway
) -> None:
    people = tenant.people
    operator = await people.operator()
    organization = await operator.make("/organizations", {"name": uuid4().hex})
    project = await operator.make(f"/organizations/{organization['id']}/projects", {"name": "p"})
    made = await operator.make(f"/projects/{project['id']}/keys", {"name": "k"})
    tenant = Tenant(people, project, made)
    urls = (people.url, other_gateway.url)
    for path in (f"/projects/{project['id']}", f"/organizations/{organization['id']}"):
        for url in urls:
            await tenant.until(200, url=url)
        await operator.change(path, {"disabled": True})
        for url in urls:
            await tenant.until(403, url=url)
            status, body = await tenant.models(url=url)
            assert (status, body["error"]["code"]) == (403, "tenant_disabled")
        await operator.change(path, {"disabled": False})
    # and an admin key of the organization is refused at once
    member = await operator.make(
        f"/organizations/{organization['id']}/members",
        {"email": "a@example.com", "name": "a", "role": "owner"},
    )
    key = await operator.make(
        f"/organizations/{organization['id']}/admin-keys", {"principal_id": member["id"], "name": "k"}
    )
    theirs = people.with_secret(key["secret"])
    await theirs.get("/me")
    await operator.change(f"/organizations/{organization['id']}", {"disabled": True})
    assert (await theirs.ask("GET", "/me")).status == 403


@pytest.mark.parametrize("withdrawn", ["key", "member", "role"])
async def test_what_is_withdrawn_while_a_body_is_on_its_way_changes_nothing(people: People, withdrawn: str) -> None:
    """The guard has let the head in; the work asks once more."""
    member = await people.principal("ours", Role.OWNER)
    secret, path = await people.key_of(member), f"/organizations/{people.organizations['ours']}/service-accounts"
    own_key = "SELECT id FROM gateway.admin_keys WHERE principal_id = $1 AND last_used_at IS NOT NULL"
    data = msgspec.json.encode({"name": f"late {uuid4()}", "role": "owner"})
    sent = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield data[:-1]
        await sent.wait()
        yield data[-1:]

    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        asked = group.create_task(people.session.post(f"{people.url}/admin/v1{path}", data=slowly(), headers=headers))
        key = await eventually(lambda: people.database.fetchrow(own_key, member))
        owner = await people.owner()
        if withdrawn == "key":
            assert (await owner.ask("POST", f"/admin-keys/{key['id']}/revoke")).status == 200
        elif withdrawn == "member":
            assert (await owner.ask("DELETE", f"/members/{member}")).status in (200, 204)
        else:
            await owner.change(f"/members/{member}", {"role": "viewer"})
        sent.set()
        response = await asked
    assert response.status == (403 if withdrawn == "role" else 401)
    listed = await owner.get(path)
    assert not [each for each in listed["data"] if each["name"].startswith("late ")]
