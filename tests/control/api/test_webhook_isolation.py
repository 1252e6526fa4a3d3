"""Receivers that never answer cost their own organization its share of the slots, and nobody else time."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from control.api.config import WebhooksConfig
from control.api.sealed import seal
from control.webhooks.delivery import WebhookDelivery, use_of
from control.webhooks.outbox import EventType, emit, tell_crossing
from control.webhooks.queue import Due, take_due
from control.webhooks.sender import Sender
from control.webhooks.signature import new_secret
from gateway.limits.spending import Crossing
from tests.control.api.people import People
from tests.control.api.receiver import receiver, tar_pits
from tests.control.api.webhook_round import deliver_round
from tests.waiting import GUARD_S, eventually

PEPPER = b"p" * 32
TAR_PITS = 20


async def an_organization(connection: asyncpg.Connection[Any]) -> UUID:
    made: UUID = await connection.fetchval(
        "INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id", uuid4().hex
    )
    return made


async def a_webhook(connection: asyncpg.Connection[Any], organization: UUID, url: str = "https://example.com/") -> UUID:
    made = uuid4()
    await connection.execute(
        "INSERT INTO gateway.webhooks (id, organization_id, url, description, secret) VALUES ($1, $2, $3, '', $4)",
        made,
        organization,
        url,
        seal(PEPPER, use_of(made), new_secret().encode()),
    )
    return made


async def test_twenty_tar_pits_of_one_tenant_do_not_hold_up_anothers_event(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    config = WebhooksConfig(allow_private_addresses=True, timeout_s=60)
    hostile, honest = await an_organization(connection), await an_organization(connection)
    async with tar_pits(TAR_PITS) as pits, receiver() as server:
        for pit in pits:
            await a_webhook(connection, hostile, pit.url)
        for _ in range(10):
            await emit(connection, hostile, EventType.BUDGET_THRESHOLD_REACHED, {})
        await a_webhook(connection, honest, server.url)
        due, stop = asyncio.Event(), asyncio.Event()
        due.set()
        running = asyncio.create_task(WebhookDelivery(fresh_postgres_url, PEPPER, config).run(due, stop))
        try:
            await eventually(lambda: sum(len(pit.came) for pit in pits) == config.organization_concurrency)
            crossing = Crossing(str(honest), "organization", str(honest), None, "2026-11", 100, 5_000, 5_000)
            await tell_crossing(connection, crossing)
            due.set()
            await eventually(lambda: len(server.came) == 1)
            assert server.came[0].event["type"] == "budget.exhausted"
            # Nothing of the other's has ended, and it holds its share and no more.
            assert await connection.fetchval("SELECT count(*) FROM gateway.webhook_attempts WHERE status IS NULL") == 0
            assert sum(len(pit.came) for pit in pits) == config.organization_concurrency
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_slots_that_get_free_are_taken_at_once_and_never_above_a_share(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One webhook that never answers beside a fast one of the same organization, 40 events each, no tick in between."""
    held: list[Counter[UUID]] = []

    async def noted(database: asyncpg.Connection[Any], under_way: list[Due], config: WebhooksConfig) -> list[Due]:
        taken = await take_due(database, under_way, config)
        held.append(Counter(each.webhook_id for each in (*under_way, *taken)))
        return taken

    monkeypatch.setattr("control.webhooks.delivery.take_due", noted)
    monkeypatch.setattr("control.webhooks.delivery.STOP_GRACE_S", 0.0)
    config = WebhooksConfig(
        allow_private_addresses=True, timeout_s=60, organization_concurrency=3, endpoint_concurrency=2
    )
    organization = await an_organization(connection)
    async with tar_pits(1) as (pit,), receiver() as server:
        await a_webhook(connection, organization, pit.url)
        await a_webhook(connection, organization, server.url)
        for _ in range(40):
            await emit(connection, organization, EventType.BUDGET_THRESHOLD_REACHED, {})
        due, stop = asyncio.Event(), asyncio.Event()
        due.set()
        running = asyncio.create_task(WebhookDelivery(fresh_postgres_url, PEPPER, config).run(due, stop))
        try:
            await eventually(lambda: len(server.came) == 40)
        finally:
            stop.set()
            due.set()
            await asyncio.wait_for(running, GUARD_S)
        assert len({came.headers["webhook-id"] for came in server.came}) == 40
        assert len(pit.came) == config.endpoint_concurrency
    assert max(each.total() for each in held) == config.organization_concurrency
    assert max(max(each.values(), default=0) for each in held) == config.endpoint_concurrency


async def test_names_that_never_resolve_keep_no_other_name_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver cannot be stopped: each of these holds a thread long after its delivery was given up."""
    resolve, held, go_on = socket.getaddrinfo, list[str](), threading.Event()

    def getaddrinfo(host: str, port: int, *rest: Any, **more: Any) -> Any:
        if host.startswith("tar-pit"):
            held.append(host)
            go_on.wait(GUARD_S)
        return resolve("127.0.0.1", port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    # an aiohttp session keeps the timeout that it began with, so the sends to tar pits are given up by hand
    config = WebhooksConfig(allow_private_addresses=True, timeout_s=GUARD_S, concurrency=16)
    try:
        async with receiver() as server, Sender(config) as sender:
            lost = [
                asyncio.create_task(sender.send(f"http://tar-pit-{number}.example/", b"{}", {})) for number in range(40)
            ]
            await eventually(lambda: len(held) == len(lost))
            for each in lost:
                each.cancel()
            await asyncio.gather(*lost, return_exceptions=True)
            assert (await sender.send(f"http://honest.example:{server.port}/", b"{}", {})).delivered
    finally:
        go_on.set()


async def test_tests_that_wait_are_capped_for_an_organization(people: People) -> None:
    operator = await people.operator()
    organization = await operator.make("/organizations", {"name": uuid4().hex})
    path = f"/organizations/{organization['id']}/webhooks"
    webhooks = [(await operator.make(path, {"url": "https://example.com/"}))["webhook"]["id"] for _ in range(2)]
    answers = await asyncio.gather(
        *(operator.ask("POST", f"/webhooks/{webhooks[number % 2]}/test") for number in range(14))
    )
    assert sorted(answer.status for answer in answers) == [201] * 10 + [409] * 4
    refusal = next(answer.body["error"] for answer in answers if answer.status == 409)
    assert "at most 10" in refusal["message"]
    assert "pending_tests" in refusal["message"]
    await people.database.execute(
        "UPDATE gateway.webhook_deliveries SET state = 'failed' WHERE webhook_id = $1", UUID(webhooks[0])
    )
    assert (await operator.ask("POST", f"/webhooks/{webhooks[1]}/test")).status == 201


async def test_a_test_is_tried_once(connection: asyncpg.Connection[Any], fresh_postgres_url: str) -> None:
    """So tests of a receiver that is away do not fill the cap for a day."""
    organization = await an_organization(connection)
    async with receiver() as server:
        server.answers = [500]
        webhook = await a_webhook(connection, organization, server.url)
        await connection.execute(
            "INSERT INTO gateway.webhook_events (organization_id, type, data, to_webhook_id)"
            " VALUES ($1, 'webhook.test', '{}', $2)",
            organization,
            webhook,
        )
        delivery = WebhookDelivery(fresh_postgres_url, PEPPER, WebhooksConfig(allow_private_addresses=True))
        assert await deliver_round(delivery) == 1
    assert await connection.fetchval("SELECT state FROM gateway.webhook_deliveries") == "failed"


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(4, 12))])
async def test_the_query_takes_what_its_plain_twin_takes(seed: int, connection: asyncpg.Connection[Any]) -> None:
    chance = random.Random(seed)
    config = WebhooksConfig(
        concurrency=chance.randint(4, 40),
        organization_concurrency=chance.randint(1, 4),
        endpoint_concurrency=chance.randint(1, 4),
    )
    webhooks = {}
    for _ in range(6):
        organization = await an_organization(connection)
        for _ in range(chance.randint(0, 4)):
            webhooks[await a_webhook(connection, organization)] = organization
    for organization in set(webhooks.values()):
        for _ in range(chance.randint(0, 8)):
            await emit(connection, organization, EventType.BUDGET_EXHAUSTED, {})
    pending = await connection.fetch("SELECT id FROM gateway.webhook_deliveries ORDER BY id")
    for row in pending:
        offset = timedelta(seconds=chance.choice([-30, -20, -10, 3_600]))
        state = chance.choice(["pending", "pending", "delivered"])
        await connection.execute(
            "UPDATE gateway.webhook_deliveries SET next_attempt_at = $2, state = $3 WHERE id = $1",
            row["id"],
            datetime.now(UTC) + offset,
            state,
        )
    under_way: list[Due] = []
    for _ in range(4):
        rows = await connection.fetch(
            "SELECT id, webhook_id, next_attempt_at FROM gateway.webhook_deliveries"
            " WHERE state = 'pending' AND next_attempt_at <= now()"
        )
        expected = plain(rows, webhooks, under_way, config)
        taken = await take_due(connection, under_way, config)
        assert sorted(each.id for each in taken) == sorted(expected)
        assert all(each.organization_id == webhooks[each.webhook_id] for each in taken)
        under_way = [each for each in (*under_way, *taken) if chance.random() < 0.6]


def plain(
    rows: list[asyncpg.Record], webhooks: dict[UUID, UUID], under_way: list[Due], config: WebhooksConfig
) -> list[UUID]:
    """Deal one at a time to whom has the fewest; within an organization to the webhook that was dealt the fewest."""
    of_webhook = Counter(each.webhook_id for each in under_way)
    turn = Counter(each.organization_id for each in under_way)
    rows = sorted(rows, key=lambda row: (row["next_attempt_at"], row["id"]))
    offers: dict[UUID, list[tuple[int, datetime, UUID]]] = {}
    for webhook, organization in webhooks.items():
        own = [row for row in rows if row["webhook_id"] == webhook]
        room = max(config.endpoint_concurrency - of_webhook[webhook], 0)
        for place, row in enumerate(own[:room]):
            offers.setdefault(organization, []).append((place, row["next_attempt_at"], row["id"]))
    for own_offers in offers.values():
        own_offers.sort()
    dealt: list[UUID] = []
    while len(under_way) + len(dealt) < config.concurrency:
        may = [each for each in offers if offers[each] and turn[each] < config.organization_concurrency]
        if not may:
            break
        who = min(may, key=lambda each: (turn[each], *offers[each][0][1:]))
        dealt.append(offers[who].pop(0)[2])
        turn[who] += 1
    return dealt
