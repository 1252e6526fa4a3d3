"""A real SGLang that is killed under load and started again, behind the whole platform, beside one that lives on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.deployment import Deployment, deployment, fake_fleet
from tests.e2e.failures.killed_engine import MODEL, kill_and_take_back
from tests.sglang.server import MODELS, SGLangProcess, SGLangServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1_500)]


@pytest.fixture(scope="module")
async def platform(sglang: SGLangServer, another: SGLangProcess) -> AsyncIterator[Deployment]:
    """The session's engine is `fake-0`, the victim `fake-1`."""
    fleet = fake_fleet(
        sglang.url, another.server.url, model=MODEL, driver="sglang", tokenizer=str(MODELS / "slipstream-chat")
    )
    # two engines on two busy cores may take seconds to answer a poll, and are healthy
    environment = {**fleet, "SLIPSTREAM_ROUTER__PROBE_TIMEOUT_S": "30"}
    async with deployment(environment=environment, token=sglang.token) as running:
        yield running


async def test_an_engine_that_is_killed_under_load_is_missed_by_nobody_and_taken_back(
    platform: Deployment, another: SGLangProcess
) -> None:
    await kill_and_take_back(platform, another)
