"""A deployment for breaking: two gateways, a router, two fake engines that can be asked about past requests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest

from tests.deployment import Deployment, deployment, fake_fleet
from tests.e2e.failures.engine_place import EnginePlace
from tests.e2e.failures.processes import fresh_connections
from tests.fakes.process import FakeEngineProcess

TOKEN = "token-of-the-trials"


@pytest.fixture(scope="session")
async def places() -> AsyncIterator[list[EnginePlace]]:
    """Two fake engines."""
    made = [EnginePlace(TOKEN), EnginePlace(TOKEN)]
    for place in made:
        await place.start()
    yield made
    for place in made:
        await place.stop()


@pytest.fixture(scope="session")
async def trial(places: list[EnginePlace]) -> AsyncIterator[Deployment]:
    """Tests leave it whole: everything runs again when they end."""
    environment = {
        # this dialect can be asked what a past request used, so a crash of a gateway loses no count
        **fake_fleet(*(place.engine.url for place in places), driver="embedded"),
        "SLIPSTREAM_LOCAL__RESTART_FIRST_S": "0.1",
        "SLIPSTREAM_LOCAL__RESTART_MAX_S": "0.2",
        "SLIPSTREAM_GATEWAY__METERING__RESOLVE_TIMEOUT_S": "1",
        "SLIPSTREAM_GATEWAY__LIMITS__LEASE_S": "3",
        "SLIPSTREAM_GATEWAY__ROUTER__PATIENCE_S": "0.2",
    }
    async with deployment(options=["--gateways", "2"], environment=environment, token=TOKEN) as running:
        yield running


@pytest.fixture
async def trial_engines(places: list[EnginePlace]) -> list[FakeEngineProcess]:
    """The trial's engines with their records and scripts cleared."""
    for place in places:
        await place.engine.control(reset=True)
    return [place.engine for place in places]


@pytest.fixture
async def trial_client(trial: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI SDK on the trial deployment; every request takes a connection of its own and so any gateway."""
    async with openai.AsyncOpenAI(
        base_url=f"{trial.url}/v1", api_key=trial.key, max_retries=0, http_client=fresh_connections()
    ) as made:
        yield made


@pytest.fixture
async def spread_client(faked: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI SDK on the shared deployment with fake engines; every request takes a connection of its own."""
    async with openai.AsyncOpenAI(
        base_url=f"{faked.url}/v1", api_key=faked.key, max_retries=0, http_client=fresh_connections()
    ) as made:
        yield made
