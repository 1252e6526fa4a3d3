"""Webhooks from the event to the receiver: fan-out, signatures, retries with growing pauses, the log, rotation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import CollectorRegistry

from control.api.config import WebhooksConfig
from control.webhooks import signature
from control.webhooks.delivery import WebhookDelivery, pause_after
from control.webhooks.metrics import OUTCOMES, WebhookMetrics
from control.webhooks.outbox import EventType, emit
from tests.control.api.lone_gateway import LoneGateway
from tests.control.api.people import Client, People
from tests.control.api.receiver import Receiver, receiver
from tests.control.api.receiver_signature import verify
from tests.control.api.webhook_round import deliver_round
from tests.waiting import eventually

CONFIG = WebhooksConfig(allow_private_addresses=True, timeout_s=30, attempts=3)


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with receiver() as running:
        yield running


class Subscriber:
    """An organization of its own with webhooks that point at a receiver."""

    def __init__(
        self,
        people: People,
        operator: Client,
        organization: UUID,
        delivery: WebhookDelivery,
        registry: CollectorRegistry,
    ) -> None:
        self.people = people
        self.operator = operator
        self.organization = organization
        self.delivery = delivery
        self.registry = registry

    async def subscribe(self, url: str, events: list[str] | None = None) -> dict[str, Any]:
        """A webhook; the API of the tests' gateway refuses this machine, so its URL is put in by hand."""
        made: dict[str, Any] = await self.operator.make(
            f"/organizations/{self.organization}/webhooks", {"url": "https://example.com/hook", "events": events}
        )
        await self.people.database.execute(
            "UPDATE gateway.webhooks SET url = $1 WHERE id = $2", url, UUID(made["webhook"]["id"])
        )
        return made

    async def tell(self, kind: EventType = EventType.BUDGET_EXHAUSTED) -> UUID | None:
        return await emit(self.people.database, self.organization, kind, {"percent": 100, "übel": 1})

    async def deliveries(self, made: dict[str, Any]) -> list[dict[str, Any]]:
        page = await self.operator.get(f"/webhooks/{made['webhook']['id']}/deliveries")
        found: list[dict[str, Any]] = page["data"]
        return found

    async def round(self) -> int:
        """Deliver what is due; returns how many were tried."""
        return await deliver_round(self.delivery)

    def tries(self) -> dict[str, float | None]:
        """How many ended how, as Prometheus is told."""
        name = "slipstream_webhook_attempts_total"
        return {outcome: self.registry.get_sample_value(name, {"outcome": outcome}) for outcome in OUTCOMES}

    async def due(self) -> None:
        await self.people.database.execute("UPDATE gateway.webhook_deliveries SET next_attempt_at = now()")


@pytest.fixture
async def subscriber(people: People, admin_gateway: LoneGateway, admin_postgres_url: str) -> Subscriber:
    operator = await people.operator()
    organization = await operator.make("/organizations", {"name": uuid4().hex})
    await people.database.execute("UPDATE gateway.webhook_deliveries SET state = 'failed' WHERE state = 'pending'")
    registry = CollectorRegistry()
    delivery = WebhookDelivery(admin_postgres_url, people.pepper, CONFIG, WebhookMetrics(registry))
    return Subscriber(people, operator, UUID(organization["id"]), delivery, registry)


async def test_an_event_reaches_the_webhooks_that_want_it_signed(subscriber: Subscriber, server: Receiver) -> None:
    wants = await subscriber.subscribe(server.url, ["budget.exhausted"])
    await subscriber.subscribe(server.url, ["budget.threshold_reached"])
    event_id = await subscriber.tell()
    assert await subscriber.round() == 1
    (came,) = server.came
    assert came.event["id"] == came.headers["webhook-id"] == str(event_id)
    assert came.event["type"] == "budget.exhausted"
    assert came.event["data"] == {"percent": 100, "übel": 1}
    assert came.event["organization_id"] == str(subscriber.organization)
    assert verify(came.headers, came.body, wants["secret"], time.time())
    assert not verify(came.headers, came.body + b" ", wants["secret"], time.time())
    assert not verify(came.headers, came.body, wants["secret"], time.time() + 301)
    assert not verify(came.headers, came.body, signature.new_secret(), time.time())
    assert not verify({**came.headers, "webhook-timestamp": "1"}, came.body, wants["secret"], 1)
    (delivery,) = await subscriber.deliveries(wants)
    assert (delivery["state"], delivery["attempts"]) == ("delivered", 1)
    assert await subscriber.round() == 0


async def test_failures_are_tried_again_and_given_up_in_the_end(subscriber: Subscriber, server: Receiver) -> None:
    made = await subscriber.subscribe(server.url)
    await subscriber.tell()
    server.answers = [500, 302, 503]
    for attempt in (1, 2, 3):
        assert await subscriber.round() == 1
        assert await subscriber.round() == 0  # not before its pause is over
        (delivery,) = await subscriber.deliveries(made)
        assert delivery["attempts"] == attempt
        await subscriber.due()
    assert delivery["state"] == "failed"
    assert subscriber.tries() == {"delivered": 0, "retried": 2, "given_up": 1}
    log = await subscriber.operator.get(f"/deliveries/{delivery['id']}")
    assert [(each["attempt"], each["status"]) for each in log["attempts"]] == [(1, 500), (2, 302), (3, 503)]
    assert len({came.headers["webhook-id"] for came in server.came}) == 1  # so that a receiver knows it again
    assert await subscriber.round() == 0
    again = await subscriber.operator.ask("POST", f"/deliveries/{delivery['id']}/retry")
    assert again.status == 200
    assert await subscriber.round() == 1
    assert (await subscriber.deliveries(made))[0]["state"] == "delivered"
    assert subscriber.tries() == {"delivered": 1, "retried": 2, "given_up": 1}


def test_pauses_grow_to_a_limit_and_last_about_a_day() -> None:
    config = WebhooksConfig()
    pauses = [pause_after(attempt, config) for attempt in range(1, config.attempts)]
    assert pauses[:3] == [15, 45, 135]
    assert pauses == sorted(pauses)
    assert max(pauses) == config.longest_pause_s
    longest_h = sum(pauses) / 3_600
    assert (round(longest_h / 2), round(longest_h)) == (14, 29), "as the guides say: drawn from half to whole"


async def test_two_workers_do_not_send_the_same_delivery(subscriber: Subscriber, server: Receiver) -> None:
    await subscriber.subscribe(server.url)
    for _ in range(20):
        await subscriber.tell()
    counts = await asyncio.gather(subscriber.round(), subscriber.round())
    assert sum(counts) == 20
    assert len(server.came) == len({came.headers["webhook-id"] for came in server.came}) == 20


async def test_a_worker_that_died_loses_nothing(subscriber: Subscriber, server: Receiver) -> None:
    made = await subscriber.subscribe(server.url)
    await subscriber.tell()
    server.answers = [0]
    dying = asyncio.create_task(subscriber.round())
    await eventually(lambda: server.came)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    assert await subscriber.round() == 0  # its lease is not over
    await subscriber.due()
    assert await subscriber.round() == 1
    assert (await subscriber.deliveries(made))[0]["state"] == "delivered"


async def test_a_rotated_secret_signs_beside_the_new_one_until_the_overlap_ends(
    subscriber: Subscriber, server: Receiver
) -> None:
    made = await subscriber.subscribe(server.url)
    path = f"/webhooks/{made['webhook']['id']}/rotate-secret"
    rotated = await subscriber.operator.make(path, {"overlap_s": 3600})
    third = await subscriber.operator.ask("POST", path, {})
    assert (third.status, third.body["error"]["param"]) == (409, "end_previous")
    await subscriber.tell()
    await subscriber.round()
    for secret in (made["secret"], rotated["secret"]):
        assert verify(server.came[0].headers, server.came[0].body, secret, time.time())
    await subscriber.people.database.execute(
        "UPDATE gateway.webhooks SET previous_secret_expires_at = now() WHERE id = $1", UUID(made["webhook"]["id"])
    )
    await subscriber.tell()
    await subscriber.round()
    assert not verify(server.came[1].headers, server.came[1].body, made["secret"], time.time())
    assert verify(server.came[1].headers, server.came[1].body, rotated["secret"], time.time())


async def test_a_test_event_goes_to_one_webhook_and_a_disabled_one_gets_nothing(
    subscriber: Subscriber, server: Receiver
) -> None:
    made = await subscriber.subscribe(server.url, ["budget.exhausted"])
    await subscriber.subscribe(server.url)
    await subscriber.operator.make(f"/webhooks/{made['webhook']['id']}/test", None)
    assert await subscriber.round() == 1
    assert server.came[0].event["type"] == "webhook.test"
    await subscriber.tell()
    await subscriber.operator.change(f"/webhooks/{made['webhook']['id']}", {"disabled": True})
    await subscriber.round()
    assert len(server.came) == 2  # the other one's
    assert [each["state"] for each in await subscriber.deliveries(made)] == ["failed", "delivered"]


async def test_a_stolen_row_does_not_open_elsewhere(subscriber: Subscriber, server: Receiver) -> None:
    """A secret is sealed for its webhook: copied to another one it signs nothing."""
    first, second = await subscriber.subscribe(server.url), await subscriber.subscribe(server.url, [])
    await subscriber.people.database.execute(
        "UPDATE gateway.webhooks SET secret = (SELECT secret FROM gateway.webhooks WHERE id = $1) WHERE id = $2",
        UUID(second["webhook"]["id"]),
        UUID(first["webhook"]["id"]),
    )
    await subscriber.tell()
    await subscriber.round()
    assert server.came == []
    (delivery,) = await subscriber.deliveries(first)
    log = await subscriber.operator.get(f"/deliveries/{delivery['id']}")
    assert "cannot be opened" in log["attempts"][0]["error"]


async def test_the_api_refuses_addresses_inside_and_a_twenty_first_webhook(subscriber: Subscriber) -> None:
    path = f"/organizations/{subscriber.organization}/webhooks"
    answer = await subscriber.operator.ask("POST", path, {"url": "https://10.0.0.1/x"})
    assert (answer.status, answer.body["error"]["param"]) == (400, "url")
    answers = await asyncio.gather(
        *(subscriber.operator.ask("POST", path, {"url": "https://example.com/"}) for _ in range(24))
    )
    assert sorted(answer.status for answer in answers) == [201] * 20 + [409] * 4


async def test_old_events_are_forgotten_with_their_log(subscriber: Subscriber, server: Receiver) -> None:
    made = await subscriber.subscribe(server.url)
    await subscriber.tell()
    await subscriber.round()
    await subscriber.people.database.execute(
        "UPDATE gateway.webhook_events SET created_at = now() - interval '31 days' WHERE organization_id = $1",
        subscriber.organization,
    )
    await subscriber.tell()
    await subscriber.delivery.sweep()
    assert [each["state"] for each in await subscriber.deliveries(made)] == ["pending"]
