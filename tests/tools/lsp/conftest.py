"""A deployment whose autocomplete model is on a fake engine, with the shipped code model's tokenizer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from tests.deployment import ROOT, Deployment, deployment
from tests.fakes.process import FakeEngineProcess, fake_engine

TOKEN = "deployment-token-of-the-tests"


def pytest_itemcollected(item: pytest.Item) -> None:
    """What needs the deployment is a system test."""
    if "coding" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.system)


@pytest.fixture(scope="session")
async def _coding_engine() -> AsyncIterator[FakeEngineProcess]:
    async with fake_engine(token=TOKEN) as engine:
        yield engine


@pytest.fixture(scope="session")
async def coding(_coding_engine: FakeEngineProcess) -> AsyncIterator[Deployment]:
    """A chat model first, then `code` for autocomplete."""
    pool = Pool("fake", "sglang", (Replica("fake-0", _coding_engine.url),), 1_000)
    tokenizer, fim = str(ROOT / "models" / "slipstream-code"), FillInTheMiddle(healing=False, min_confidence=0.0)
    models = [
        Model("chat", Tier.CHAT, "fake", 4_096),
        Model("code", Tier.AUTOCOMPLETE, "fake", 200_000, tokenizer=tokenizer, fim=fim),
    ]
    environment = {
        "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
    }
    async with deployment(environment=environment, token=TOKEN) as running:
        yield running


@pytest.fixture
async def engine(coding: Deployment, _coding_engine: FakeEngineProcess) -> FakeEngineProcess:
    """The fake engine with its records and scripts cleared."""
    await _coding_engine.control(reset=True)
    return _coding_engine
