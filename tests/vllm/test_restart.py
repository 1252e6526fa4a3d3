"""A real vLLM that is killed under load and started again, behind the whole platform, beside one that lives on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.deployment import Deployment, deployment, fake_fleet
from tests.e2e.failures.killed_engine import MODEL, kill_and_take_back
from tests.vllm.server import CONTEXT_TOKENS, FOLDER, VLLMProcess, VLLMServer

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1_500)]


@pytest.fixture(scope="module")
async def platform(vllm: VLLMServer, another: VLLMProcess) -> AsyncIterator[Deployment]:
    """The session's engine is the survivor."""
    urls = vllm.url, another.server.url
    fleet = fake_fleet(*urls, model=MODEL, driver="vllm", tokenizer=str(FOLDER), context_tokens=CONTEXT_TOKENS)
    # two engines on two busy cores may take seconds to answer a poll, and are healthy
    environment = {**fleet, "SLIPSTREAM_ROUTER__PROBE_TIMEOUT_S": "30"}
    async with deployment(environment=environment, token=vllm.token) as running:
        yield running


async def test_an_engine_that_is_killed_under_load_is_missed_by_nobody_and_taken_back(
    platform: Deployment, another: VLLMProcess
) -> None:
    await kill_and_take_back(platform, another)
