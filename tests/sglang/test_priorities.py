"""Classes at the real SGLang, started as `engines render` starts it: a full engine goes by class and not by arrival."""

from __future__ import annotations

import asyncio

import pytest

from contracts.generation import BACKGROUND_PRIORITY
from contracts.service_class import ServiceClass
from tests.real_engine import GUARD_S, ask, read_all
from tests.sglang.client import CHAT, DRIVER, ENDLESS, Client

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(700)]
OFFLINE, STANDARD, INTERACTIVE = (each.priority for each in ServiceClass)


async def test_a_later_request_of_a_higher_class_is_answered_before_earlier_ones_of_lower(
    narrow: Client,
) -> None:
    engine = narrow
    await engine.idle()
    running = ask(CHAT, max_tokens=3_000, logit_bias=ENDLESS)
    stream = await engine.open(running)
    assert await stream.read()
    asked = (BACKGROUND_PRIORITY, OFFLINE, OFFLINE, STANDARD, STANDARD, INTERACTIVE, INTERACTIVE)
    answered: list[int] = []

    async def one(priority: int) -> None:
        await engine.events(ask(CHAT, priority=priority))
        answered.append(priority)

    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        for number, priority in enumerate(asked, 1):
            group.create_task(one(priority))
            await engine.until_load(lambda load, number=number: load.waiting >= number)  # type: ignore[misc]
        assert not answered, "the engine is full"
        await engine.fetch(DRIVER.abort(running.request_id))
        await read_all(stream)
    assert answered == sorted(asked, reverse=True)


async def test_interactive_interrupts_offline_and_standard_does_not(narrow: Client) -> None:
    engine = narrow
    await engine.idle()
    offline = ask(CHAT, priority=OFFLINE, max_tokens=3_000, logit_bias=ENDLESS)
    stream = await engine.open(offline)
    assert await stream.read()
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        standard = group.create_task(engine.events(ask(CHAT)))
        await engine.until_load(lambda load: load.waiting >= 1)
        await engine.events(ask(CHAT, priority=INTERACTIVE))
        await engine.fetch(DRIVER.abort(offline.request_id))
        rest = await read_all(stream)
        assert b'"finish_reason":"abort"' in rest, "it had not ended before"
        await standard
