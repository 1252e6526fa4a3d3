"""Deployments that the end-to-end tests share: the shipped models on embedded engines, and one on fake engines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest

from tests.deployment import ROOT, Deployment, deployment, fake_fleet
from tests.fakes.process import FakeEngineProcess, fake_engine

TOKEN = "deployment-token-of-the-tests"
SHARED = ("trial", "embedded", "faked")
"""Fixtures that start a deployment for the whole session."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Everything here needs a whole deployment. Tests that share one run in one process, where it starts once."""
    item.add_marker(pytest.mark.system)
    for name in SHARED:
        if name in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(name))
            return


@pytest.fixture(scope="session")
async def embedded() -> AsyncIterator[Deployment]:
    """`slipstream up` as a newcomer starts it."""
    # its worker asks engines for their counters as it starts; on a busy machine they may not answer yet, and the next
    # time by default is five minutes later, longer than a test waits for a series
    # so are the sixty seconds between two roll-ups of objectives
    # of the shipped model's completions few are sure enough to be shown, and tests look at text
    environment = {
        "SLIPSTREAM_WORKER__LEDGER__RECONCILE_EVERY_S": "10",
        "SLIPSTREAM_SLO__ROLL_UP_EVERY_S": "2",
        "SLIPSTREAM_LOCAL__FIM__MIN_CONFIDENCE": "0",
    }
    async with deployment(environment=environment) as running:
        yield running


@pytest.fixture(scope="session")
async def engines() -> AsyncIterator[list[FakeEngineProcess]]:
    """Two fake engines that expect the deployment's token."""
    async with fake_engine(token=TOKEN) as one, fake_engine(token=TOKEN) as two:
        yield [one, two]


@pytest.fixture(scope="session")
async def faked(engines: list[FakeEngineProcess]) -> AsyncIterator[Deployment]:
    """Two gateways and a router in front of the fake engines, with the shipped chat model's tokenizer."""
    environment = {
        **fake_fleet(
            *(engine.url for engine in engines),
            tokenizer=str(ROOT / "models" / "slipstream-chat"),
            context_tokens=200_000,
        ),
        "SLIPSTREAM_GATEWAY__CLIENT_STALL_TIMEOUT_S": "2",
    }
    async with deployment(options=["--gateways", "2"], environment=environment, token=TOKEN) as running:
        yield running


@pytest.fixture
async def fresh_engines(engines: list[FakeEngineProcess]) -> list[FakeEngineProcess]:
    """The fake engines with their records and scripts cleared."""
    for engine in engines:
        await engine.control(reset=True)
    return engines


@pytest.fixture
async def client(embedded: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI SDK, unchanged, without retries: a failure must be seen."""
    async with openai.AsyncOpenAI(base_url=f"{embedded.url}/v1", api_key=embedded.key, max_retries=0) as made:
        yield made


@pytest.fixture
async def fake_client(faked: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI SDK on the fake engines."""
    async with openai.AsyncOpenAI(base_url=f"{faked.url}/v1", api_key=faked.key, max_retries=0) as made:
        yield made
