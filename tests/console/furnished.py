"""A deployment with something to show on every page: what the guide's pictures are of."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import aiohttp
import asyncpg

from contracts.dated_request_id import mint
from control.completions.rollup import roll_up as roll_up_completions
from control.diagnosis.findings.finding import Cause
from control.prefixes.rollup import roll_up as roll_up_prefixes
from control.releases import store as releases
from control.releases.machine import State
from tests.console.figures import PREFIX_SAMPLES, tenant
from tests.console.pages import Console, made
from tests.console.quality import put_candidate, put_comparisons, put_nights, put_reviews, put_windows
from tests.console.test_organization import TRACE
from tests.control.diagnosis.findings.traffic import CHANGES, rows
from tests.control.diagnosis.stored_traffic import organization as tenant_of_traffic
from tests.control.diagnosis.stored_traffic import store
from tests.control.releases.rollout.traffic import Load, history
from tests.deployment import Deployment
from tests.waiting import eventually

PROMPT = "You answer in one sentence. How long is a piece of string? " * 4
SESSION = "01a221ea-25a8-77c3-b966-f07322de4aac"
MEMBERS = (("Grace", "admin"), ("Linus", "developer"), ("Margaret", "billing"))
DELIVERIES = """
INSERT INTO gateway.webhook_events (organization_id, type, data)
SELECT $1, kind, '{}' FROM unnest(ARRAY['budget.threshold', 'budget.exhausted', 'budget.threshold']) AS kind
"""
DELIVERED = "UPDATE gateway.webhook_deliveries SET state = 'delivered', attempts = 1 WHERE webhook_id = $1"


async def furnish(owner: Console, deployed: Deployment) -> dict[str, str]:
    """Ids by the parameters of the console's addresses; `served` is a request that was answered, `requestId` one that
    was refused."""
    async with deployed.database() as database:
        organization = await tenant(database)
        await database.execute("UPDATE gateway.organizations SET name = 'Acme' WHERE id = $1", organization)
        project = await database.fetchval(
            "SELECT id FROM gateway.projects WHERE organization_id = $1 AND name = 'backend'", organization
        )
        ids = {"organizationId": str(organization), "projectId": str(project), "pool": "fake", "version": "1"}
        ids |= await _administered(owner, deployed, str(organization), str(project))
        await _prices_and_limits(owner, ids)
        await _completions(database, deployed, organization, project)
        await database.execute(PREFIX_SAMPLES, organization)
        await asyncio.to_thread(roll_up_prefixes, deployed.database_url, sample_retention_days=30)
        ids |= await _traffic(owner, deployed, ids)
        ids |= await _quality(owner, deployed, database)
        await _slow(database, organization)
        await database.execute(DELIVERIES, organization)
        await database.execute(DELIVERED, UUID(ids["webhookId"]))
    return ids


async def _administered(owner: Console, deployed: Deployment, organization: str, project: str) -> dict[str, str]:
    base = f"/organizations/{organization}"
    for name, role in MEMBERS:
        await made(owner, f"{base}/members", {"name": name, "email": f"{name.lower()}@acme.example", "role": role})
    account = await made(owner, f"{base}/service-accounts", {"name": "pipeline", "role": "developer"})
    await made(owner, f"{base}/admin-keys", {"name": "nightly", "principal_id": account["id"]})
    adapter = {"model": "fake-chat", "name": "support-2", "path": "/srv/adapters/support-2", "project_id": project}
    await made(owner, f"{base}/adapters", adapter)
    hook = {"url": "https://example.com/hooks/slipstream", "description": "budgets"}
    webhook = (await made(owner, f"{base}/webhooks", hook))["webhook"]["id"]
    await made(owner, f"{base}/priorities/chat", {"service_class": "interactive", "share": 300}, "PUT")
    await made(owner, f"/priorities/project/{project}/autocomplete", {"service_class": "standard", "share": 50}, "PUT")
    await made(owner, "/changes", {"name": "chunked prefill", "metric": "ttft", "expected_ms": -350})
    key = await made(owner, f"/projects/{project}/keys", {"name": "website"})
    return {"webhookId": webhook, "keyId": key["key"]["id"], "secret": key["secret"]}


async def _prices_and_limits(owner: Console, ids: dict[str, str]) -> None:
    for model in ("fake-chat", "fake-code"):
        await made(owner, "/prices", {"model": model, "input_micro": 2_500_000, "output_micro": 10_000_000})
    money = {"money_micro_per_month": 50_000_000, "tokens_per_minute": 1_000_000}
    await made(owner, f"/limits/organization/{ids['organizationId']}/all", money, "PUT")
    await made(owner, f"/limits/project/{ids['projectId']}/chat", {"tokens_per_day": 2_000_000}, "PUT")
    await made(owner, f"/limits/key/{ids['keyId']}/all", {"requests_per_minute": 6}, "PUT")


async def _completions(database: asyncpg.Connection, deployed: Deployment, organization: UUID, project: UUID) -> None:
    for number in range(60):
        language, characters = ("python", "go", "rust")[number % 3], (40, 0, 25, 31, 12)[number % 5]
        at_s = time.time() - 1_800 * number
        await database.execute(TRACE, mint(at_s), str(organization), str(uuid4()), language, characters)
    await database.execute("UPDATE gateway.request_traces SET project_id = $1 WHERE endpoint = 'fim'", project)
    await asyncio.to_thread(roll_up_completions, deployed.database_url, trace_retention_days=30)


async def _traffic(owner: Console, deployed: Deployment, ids: dict[str, str]) -> dict[str, str]:
    """Until a limit refuses: of the key, so that the ones before were answered."""
    body = {"model": "fake-chat", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 24, "stream": True}
    answered: list[str] = []
    headers = {"Authorization": f"Bearer {ids['secret']}", "x-claude-code-session-id": SESSION}
    async with aiohttp.ClientSession(headers=headers) as http:
        for _ in range(40):
            async with http.post(f"{deployed.url}/v1/chat/completions", json=body) as answer:
                await answer.read()
                if answer.status == 429:
                    refused = answer.headers["x-request-id"]
                    break
                answered.append(answer.headers["x-request-id"])
        else:
            raise AssertionError("no limit refused")
    for each in (answered[-1], refused):
        await owner.until("id => fetch(`/admin/v1/requests/${id}`).then(answer => answer.ok)", each)
    return {"served": answered[-1], "requestId": refused, "sessionId": SESSION}


async def _quality(owner: Console, deployed: Deployment, database: asyncpg.Connection) -> dict[str, str]:
    """A release whose evidence was looked at, and what else is known of how good answers are."""
    await put_candidate(database, "http://127.0.0.1:9", "http://127.0.0.1:9")
    comparison = (await put_comparisons(database))[-1]
    run = await database.fetchval("SELECT candidate_run FROM evals.comparisons WHERE id = $1", comparison)
    await put_nights(database)
    await put_reviews(database, deployed.database_url)
    await put_windows(database)
    await history(database)
    stages = {"stages": [0.25, 0.5, 1.0], "margins": {"least_units": [2_000, 3_000]}}
    release = UUID((await made(owner, "/releases", {"model": "m", "candidate_pool": "new", **stages}))["id"])
    load = Load()

    async def runs() -> bool:
        found = await releases.locked(database, release)
        return found is not None and found.state is State.RUNNING

    await eventually(runs)
    for _ in range(3):
        found = await releases.locked(database, release)
        assert found is not None
        assert await load.serve(database, found, 120) > 0
    return {"releaseId": str(release), "comparisonId": str(comparison), "runId": str(run)}


async def _slow(database: asyncpg.Connection, organization: UUID) -> None:
    """Two windows in the last hour and a half, the second of which is slow: of all, and of this organization."""
    source, now = random.Random(31), datetime.now(UTC)
    before, after = now - timedelta(minutes=75), now - timedelta(minutes=20)
    change = CHANGES[Cause.RETRACTIONS]
    await store(database, [*rows(source, before), *(change(source, row) for row in rows(source, after))])
    await database.execute(
        "UPDATE gateway.request_traces SET organization_id = $1 WHERE organization_id = $2",
        organization,
        tenant_of_traffic("acme"),
    )
