"""Classes at the real vLLM, started as `engines render` starts it: a full engine goes by class and not by arrival.
There the lowest number goes first: with the wrong sign the order would be the other way round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from contracts.generation import BACKGROUND_PRIORITY, TextPrompt
from contracts.service_class import ServiceClass
from engines.drivers.vllm import VLLMDriver
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.real_engine import RealEngine, ask
from tests.vllm.server import TOKEN, vllm_process

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
OFFLINE, STANDARD, INTERACTIVE = (each.priority for each in ServiceClass)
FLAGS = ("--scheduling-policy", "priority", "--max-num-seqs", "1", "--max-model-len", "4608")
HELD_TOKENS = 4_500
"""Seconds of work even where no core is busy."""
ENDLESS = {"5": 100.0}
"""A bias that leaves only one token possible: the stream runs until max_tokens."""
ATTEMPTS = 3
"""To have all wait together."""
GUARD_S = 180.0
"""Against hanging for ever, not a measure."""


@pytest.fixture(scope="module")
async def one_at_a_time() -> AsyncIterator[RealEngine]:
    """An engine that runs one request at a time, by priority."""
    async with vllm_process(*FLAGS) as process:
        connections = EngineConnections(OneKey(TOKEN))
        server = process.server
        yield RealEngine(VLLMDriver(), server.url, server.model, connections)
        await connections.close()


async def order_of_answers(engine: RealEngine, asked: Sequence[int]) -> list[int] | None:
    """The priorities by which requests that all waited together were answered; None where they never did, because the
    engine was done with the one that held it before all had come: busy cores can keep a client for seconds."""
    await engine.idle()
    held, _ = await engine.begun(ask(TextPrompt(("held",)), max_tokens=HELD_TOKENS, logit_bias=ENDLESS))
    answered: list[int] = []

    async def one(priority: int) -> None:
        await engine.events(ask(TextPrompt((f"{priority}",)), priority=priority))
        answered.append(priority)

    async with asyncio.TaskGroup() as group:
        for number, priority in enumerate(asked, 1):
            group.create_task(one(priority))
            await engine.until_load(lambda load, number=number: load.waiting == number or bool(answered))  # type: ignore[misc]
        waited_together = not answered
        held.close()
    return answered if waited_together else None


async def test_a_later_request_of_a_higher_class_is_answered_before_earlier_ones_of_lower(
    one_at_a_time: RealEngine,
) -> None:
    asked = (BACKGROUND_PRIORITY, OFFLINE, OFFLINE, STANDARD, STANDARD, INTERACTIVE, INTERACTIVE)
    async with asyncio.timeout(GUARD_S):
        for _ in range(ATTEMPTS):
            if answered := await order_of_answers(one_at_a_time, asked):
                break
    assert answered, "the engine is full"
    assert answered == sorted(asked, reverse=True)
