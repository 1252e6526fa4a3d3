"""The worker's side of webhooks: its task has what the limits tell delivered, and the sweep forgets."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from celery import Celery

from control.api.config import WebhooksConfig
from control.webhooks import tasks
from control.webhooks.delivery_thread import DeliveryThread
from control.webhooks.outbox import tell_crossing
from gateway.limits.spending import Crossing
from tests.control.api.people import People
from tests.control.api.receiver import receiver
from tests.waiting import eventually


async def test_a_budgets_threshold_reaches_the_customer_once(people: People, admin_postgres_url: str) -> None:
    operator = await people.operator()
    organization = await operator.make("/organizations", {"name": uuid4().hex})
    made = await operator.make(f"/organizations/{organization['id']}/webhooks", {"url": "https://example.com/"})
    app = Celery("test")
    config = WebhooksConfig(allow_private_addresses=True)
    delivery = DeliveryThread(admin_postgres_url, lambda: people.pepper, config)
    tasks.add_tasks(app, admin_postgres_url, lambda: people.pepper, config, delivery.wake)
    crossings = [
        Crossing(organization["id"], "organization", organization["id"], None, "2026-11", percent, 5_000, spent)
        for percent, spent in ((80, 4_000), (80, 4_100), (100, 5_000))
    ]
    async with receiver() as server:
        await people.database.execute(
            "UPDATE gateway.webhooks SET url = $1 WHERE id = $2", server.url, UUID(made["webhook"]["id"])
        )
        for crossing in crossings:
            await tell_crossing(people.database, crossing)

        def ours() -> list[dict[str, Any]]:
            return [came.event for came in server.came if came.event["organization_id"] == organization["id"]]

        try:
            await asyncio.to_thread(app.tasks[tasks.DELIVER])
            await eventually(lambda: len(ours()) >= 2)
        finally:
            await asyncio.to_thread(delivery.stop)
    told = sorted((event["type"], event["data"]["percent"], event["data"]["spent_micro"]) for event in ours())
    assert told == [("budget.exhausted", 100, 5_000), ("budget.threshold_reached", 80, 4_000)]


async def test_the_sweep_forgets_old_idempotency_keys(people: People, admin_postgres_url: str) -> None:
    app, kept, old = Celery("test"), uuid4().hex, uuid4().hex
    tasks.add_tasks(app, admin_postgres_url, lambda: people.pepper, WebhooksConfig(), lambda: None)
    for key, age in ((kept, "23 hours"), (old, "25 hours")):
        await people.database.execute(
            "INSERT INTO gateway.idempotency_keys (principal_id, key, fingerprint, run_id, started_at)"
            f" VALUES (gen_random_uuid(), $1, 'x', gen_random_uuid(), now() - interval '{age}')",
            key,
        )
    await asyncio.to_thread(app.tasks[tasks.SWEEP])
    left = {row[0] for row in await people.database.fetch("SELECT key FROM gateway.idempotency_keys")}
    assert kept in left
    assert old not in left


async def test_a_database_that_is_away_is_met_again(caplog: pytest.LogCaptureFixture) -> None:
    app = Celery("test")
    away = "postgresql://slipstream@/slipstream?host=/nonexistent"
    delivery = DeliveryThread(away, lambda: b"pepper", WebhooksConfig())
    tasks.add_tasks(app, away, lambda: b"pepper", WebhooksConfig(), delivery.wake)
    try:
        for _ in range(2):
            await asyncio.to_thread(app.tasks[tasks.DELIVER])
            await eventually(lambda: "webhooks wait for the database" in caplog.text)
            caplog.clear()  # and the thread still works
    finally:
        await asyncio.to_thread(delivery.stop)
    await asyncio.to_thread(app.tasks[tasks.SWEEP])
