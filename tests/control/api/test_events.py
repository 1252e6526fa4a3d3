"""Streams of news on a real gateway: told of what changes, of one's own organization alone, and only while one may."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import aiohttp
import msgspec
import pytest

from contracts.dated_request_id import mint
from control.api.events.config import EventsConfig
from control.api.events.topics import OF_TENANTS, Topic
from storage.roles import Role
from tests.control.api.lone_gateway import LoneGateway
from tests.control.api.people import Client, People
from tests.waiting import GUARD_S, eventually


@pytest.fixture
def gateway(admin_gateway: LoneGateway) -> LoneGateway:
    return admin_gateway


class Listener:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.last_id = ""

    async def line(self) -> str:
        """The next one that is not empty; none at the end."""
        async with asyncio.timeout(GUARD_S):
            while line := await self._response.content.readline():
                text = line.decode().rstrip("\n")
                if text.startswith("id: "):
                    self.last_id = text.removeprefix("id: ")
                elif text:
                    return text
        return ""

    async def topic(self) -> Topic:
        """Of the next news, whatever beats come before."""
        while (line := await self.line()) and not line.startswith("data: "):
            pass
        assert line, "the stream ended"
        return Topic(msgspec.json.decode(line.removeprefix("data: "))["topic"])

    async def heard(self, *topics: Topic) -> None:
        missing = set(topics)
        while missing:
            missing.discard(await self.topic())

    async def over(self) -> None:
        while await self.line():
            pass


@contextlib.asynccontextmanager
async def listening(gateway: LoneGateway, client: Client, *topics: Topic, since: str = "") -> AsyncIterator[Listener]:
    """Connected, and told so."""
    headers = {"authorization": f"Bearer {client.secret}"} | ({"last-event-id": since} if since else {})
    url = f"{gateway.url}/admin/v1/events?topics={','.join(topics)}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        listener = Listener(response)
        assert (await listener.line()).startswith("retry: ")
        yield listener


async def refusal(gateway: LoneGateway, client: Client, topics: str, **also: str) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {client.secret}", **also}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{gateway.url}/admin/v1/events?topics={topics}", headers=headers) as response,
    ):
        body = await response.json()
        assert response.status < 500
        return response.status, body["error"]["code"]


async def request_of(people: People, organization_id: UUID) -> None:
    await people.database.execute(
        "INSERT INTO gateway.request_traces (request_id, organization_id, status, total_ms, phases_ms)"
        " VALUES ($1, $2, 200, 1, '{}')",
        mint(),
        organization_id,
    )


async def test_news_arrive(people: People, gateway: LoneGateway) -> None:
    ours = people.organizations["ours"]
    async with (
        listening(gateway, await people.operator(), Topic.REQUESTS, Topic.SLO, Topic.FLEET) as operator,
        listening(gateway, await people.as_(Role.VIEWER), Topic.REQUESTS, Topic.USAGE, Topic.COMPLETIONS) as viewer,
    ):
        await request_of(people, ours)
        await viewer.heard(Topic.REQUESTS, Topic.USAGE)
        await operator.heard(Topic.REQUESTS)
        await people.database.execute("INSERT INTO gateway.slo_roll_up_runs VALUES (clock_timestamp(), 0, 0)")
        await operator.heard(Topic.SLO)
        await people.database.execute("INSERT INTO gateway.completion_roll_up_runs VALUES (clock_timestamp(), 0, 0)")
        await viewer.heard(Topic.COMPLETIONS)
        await people.database.execute("INSERT INTO gateway.fleet_gateways (instance) VALUES ($1)", str(uuid4()))
        await operator.heard(Topic.FLEET)
        assert viewer.last_id


async def test_nobody_hears_of_another_organization(people: People, gateway: LoneGateway) -> None:
    """Theirs come first, and ours are the first that we hear of."""
    theirs = people.organizations["theirs"]
    ours = await people.move_in_as("quiet")
    tenants = sorted(OF_TENANTS)
    async with (
        listening(gateway, await people.operator(), Topic.REQUESTS) as operator,
        listening(gateway, await people.as_(Role.OWNER, "quiet"), *tenants) as owner,
    ):
        await request_of(people, theirs)
        await operator.heard(Topic.REQUESTS)
        await people.database.execute("INSERT INTO gateway.usage_roll_up_runs VALUES (clock_timestamp(), 0, 0)")
        await people.database.execute("INSERT INTO gateway.slo_roll_up_runs VALUES (clock_timestamp(), 0, 0)")
        await people.database.execute("INSERT INTO gateway.completion_roll_up_runs VALUES (clock_timestamp(), 0, 0)")
        beats = [await owner.line() for _ in range(4)]
        assert beats == [": beat"] * 4
        async with listening(gateway, await people.as_(Role.OWNER, "quiet"), *tenants) as again:
            assert await again.line() == ": beat"
            assert again.last_id == owner.last_id, "the id counts nobody else's news"
        await request_of(people, ours)
        await owner.heard(Topic.REQUESTS, Topic.USAGE, Topic.DIAGNOSIS)


OF_THE_KEY = "WHERE id = (SELECT principal_id FROM gateway.admin_keys WHERE id = $1)"
ENDS = {
    "revoked": "UPDATE gateway.admin_keys SET revoked_at = now() WHERE id = $1",
    "disabled": f"UPDATE gateway.principals SET disabled_at = now() {OF_THE_KEY}",
    "demoted": f"UPDATE gateway.principals SET role = 'billing' {OF_THE_KEY}",
    "expired": "UPDATE gateway.admin_keys SET expires_at = now() WHERE id = $1",
    # without an overlap: the key stands, this secret of it does not
    "rotated": "UPDATE gateway.admin_keys SET hash = sha256(hash), previous_hash = hash, previous_expires_at = now()"
    " WHERE id = $1",
}


async def test_the_secret_before_listens_as_long_as_it_stands(people: People, gateway: LoneGateway) -> None:
    principal = await people.principal("ours", Role.VIEWER)
    mine = people.with_secret(await people.key_of(principal))
    async with listening(gateway, mine, Topic.USAGE) as listener:
        await people.database.execute(
            "UPDATE gateway.admin_keys SET hash = sha256(hash), previous_hash = hash,"
            " previous_expires_at = now() + interval '1 hour' WHERE principal_id = $1",
            principal,
        )
        assert [await listener.line() for _ in range(4)] == [": beat"] * 4


@pytest.mark.parametrize("end", ENDS)
async def test_a_stream_ends_with_what_opened_it(end: str, people: People, gateway: LoneGateway) -> None:
    principal = await people.principal("ours", Role.VIEWER)
    mine = people.with_secret(await people.key_of(principal))
    key = await people.database.fetchval("SELECT id FROM gateway.admin_keys WHERE principal_id = $1", principal)
    async with listening(gateway, await people.owner(), Topic.USAGE) as other:
        async with listening(gateway, mine, Topic.USAGE) as listener:
            assert await listener.line() == ": beat"
            await people.database.execute(ENDS[end], key)
            await listener.over()
        assert await other.line() == ": beat"


async def test_places_are_bounded_and_given_back(people: People, gateway: LoneGateway) -> None:
    mine = people.with_secret(await people.key_of(await people.principal("ours", Role.VIEWER)))
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(EventsConfig().max_streams_per_principal):
            await stack.enter_async_context(listening(gateway, mine, Topic.USAGE))
        assert await refusal(gateway, mine, "usage") == (429, "rate_limit_exceeded")

    async def has_room() -> bool:
        with contextlib.suppress(AssertionError):  # until the gateway hears that they have left
            async with listening(gateway, mine, Topic.USAGE):
                return True
        return False

    await eventually(has_room)


async def test_a_page_of_another_site_takes_no_place(people: People, gateway: LoneGateway) -> None:
    owner = await people.owner()
    for site in ("cross-site", "same-site"):
        assert (await refusal(gateway, owner, "usage", **{"sec-fetch-site": site}))[0] == 403


async def test_who_comes_back_late_is_told_of_everything(people: People, gateway: LoneGateway) -> None:
    owner = await people.owner()
    async with listening(gateway, owner, Topic.REQUESTS, Topic.USAGE, since="of-another-gateway") as listener:
        await listener.heard(Topic.REQUESTS, Topic.USAGE)


async def test_topics_that_are_barred_or_unknown_are_refused(people: People, gateway: LoneGateway) -> None:
    owner = await people.owner()
    billing = await people.as_(Role.BILLING)
    assert await refusal(gateway, billing, "usage,requests") == (403, "permission_denied")
    assert await refusal(gateway, owner, "weather") == (400, "invalid_value")
    assert (await refusal(gateway, owner, ""))[0] == 400
    assert (await refusal(gateway, people.with_secret("sk-slip-admin-none"), "usage"))[0] == 401
