"""`slipstream control`: the admin API and the console at an address of their own, next to a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import aiohttp
import asyncpg
import pytest

from storage.roles import Role
from tests.control.api.lone_gateway import LoneGateway
from tests.control.api.people import Client, People
from tests.deployment import free_port, plain_environment
from tests.processes import answers, module_process


@pytest.fixture(scope="module")
async def apart(admin_gateway: LoneGateway, admin_postgres_url: str, valkey_url: str) -> AsyncIterator[str]:
    """Its address. It has the data folder of the gateway, as on one machine."""
    port = free_port()
    environment = {
        **plain_environment(),
        "SLIPSTREAM_LOCAL__DATABASE_URL": admin_postgres_url,
        "SLIPSTREAM_LOCAL__VALKEY_URL": valkey_url,
        "SLIPSTREAM_GATEWAY__LIMITS__KEY_PREFIX": admin_gateway.data.parent.name,
        "SLIPSTREAM_ROUTER__CONTROL_PORT": str(free_port()),
    }
    folder = str(admin_gateway.data)
    async with (
        module_process(
            "slipstream", "control", "--data", folder, "--port", str(port), environment=environment
        ) as process,
        aiohttp.ClientSession() as session,
    ):
        await answers(session, f"http://127.0.0.1:{port}/readyz", process)
        yield f"http://127.0.0.1:{port}"


async def test_both_addresses_administer_one_deployment(apart: str, people: People) -> None:
    owner, operator = await people.as_(Role.OWNER), await people.as_(Role.OWNER, "operator")
    here = Client(people.session, apart, owner.secret)
    project = await here.make(f"/organizations/{people.organizations['ours']}/projects", {"name": uuid4().hex})
    assert await owner.get(f"/projects/{project['id']}") == project
    for path in ("/me", "/models", "/openapi.json"):
        there = Client(people.session, apart, operator.secret)
        assert await there.get(path) == await operator.get(path)
    refused = await here.ask("GET", "/fleet/live")
    assert refused.status in (403, 503)


async def test_money_is_counted_and_no_gateway_waits_for_this_process(
    apart: str, people: People, admin_postgres_url: str
) -> None:
    owner = Client(people.session, apart, (await people.as_(Role.OWNER)).secret)
    project = await owner.make(f"/organizations/{people.organizations['ours']}/projects", {"name": uuid4().hex})
    path = f"/limits/project/{project['id']}"
    assert (await owner.ask("PUT", f"{path}/all", {"money_micro_per_month": 7_000_000})).status == 200
    counters = await owner.get(f"{path}/counters")
    assert (counters["money_counted"], [each["remaining"] for each in counters["data"]]) == (True, [7_000_000])
    database = await asyncpg.connect(admin_postgres_url)
    joined = await database.fetch("SELECT instance FROM gateway.limit_gateways")
    await database.close()
    assert "control" not in {row["instance"] for row in joined}


async def test_it_serves_pages_and_no_model(apart: str, people: People) -> None:
    session = people.session
    async with session.get(f"{apart}/") as response:
        assert (response.status, response.url.path) == (200, "/console/")
    async with session.post(f"{apart}/v1/chat/completions", json={}) as response:
        told = await response.json()
        assert response.status == 404
        assert "Served: GET /admin/v1/openapi.json, GET /console/." in told["error"]["message"]
