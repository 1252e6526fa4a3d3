"""One of two replicas is drained on the fleet's page: what runs there ends by itself, and the other answers everybody
until it is given requests again.
"""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from playwright.async_api import Locator

from tests.console.conftest import Engines
from tests.console.pages import Console, expect
from tests.deployment import Deployment
from tests.fakes.chunks import answer_text
from tests.fakes.process import FakeEngineProcess
from tests.waiting import GUARD_S

Pair = tuple[FakeEngineProcess, FakeEngineProcess]
REQUESTS = 12


@pytest.fixture
def engines(fakes: Engines) -> Pair:
    """`pair-0` and `pair-1`."""
    return fakes.pair


async def ask(deployed: Deployment, text: str) -> str:
    """A request's answer, which is 200."""
    body = {"model": "pair", "messages": [{"role": "user", "content": text}], "max_tokens": 8}
    headers = {"Authorization": f"Bearer {deployed.key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{deployed.url}/v1/chat/completions", json=body) as answer,
    ):
        told = await answer.json()
        assert answer.status == 200, told
        return str(told["choices"][0]["message"]["content"])


async def counts(engines: Pair) -> list[int]:
    """Requests of clients that each got."""
    return [len(await engine.recorded()) for engine in engines]


async def begun_on(deployed: Deployment, engines: Pair, place: int) -> asyncio.Task[str]:
    """A request that this engine was given, which may still run. Ever other prompts are asked until it is: one prompt
    may stay where its prefix is kept."""
    before, number = (await counts(engines))[place], 0
    async with asyncio.timeout(GUARD_S):
        while True:
            task = asyncio.create_task(ask(deployed, f"{number} is a number"))
            while not task.done():
                if (await counts(engines))[place] > before:
                    return task
                await asyncio.sleep(0.02)
            if (await counts(engines))[place] > before:
                return task
            await task
            number += 1


async def weigh(row: Locator, action: str) -> None:
    """Press the replica's button, and again in the dialog, which asks for no name to be typed."""
    await row.get_by_role("button", name=action).click()
    dialog = row.page.get_by_role("dialog")
    if action == "Drain":
        await expect(dialog.get_by_text("1 other replica of pair can serve.")).to_be_visible()
    await dialog.get_by_role("button", name=action).click()
    await dialog.wait_for(state="hidden")


async def test_the_other_replica_answers_while_one_is_drained(
    owner: Console, deployed: Deployment, engines: Pair
) -> None:
    for place in (0, 1):
        await (await begun_on(deployed, engines, place))
    await owner.go("/operations/fleet")
    row = owner.page.get_by_role("region", name="Replicas").get_by_role("row", name="pair-0")
    await engines[0].control(hang_after_tokens=3)
    running = await begun_on(deployed, engines, 0)
    await weigh(row, "Drain")
    await expect(row.get_by_text("draining", exact=True)).to_be_visible()
    before = await counts(engines)
    for number in range(REQUESTS):
        assert await ask(deployed, f"{number} is asked while it is drained")
    after = await counts(engines)
    assert [now - then for now, then in zip(after, before, strict=True)] == [0, REQUESTS]
    assert not running.done(), "what runs there is not broken off"
    await engines[0].finish((await engines[0].recorded())[-1]["rid"])
    assert await running == answer_text(3)
    await expect(row.get_by_text("drained", exact=True)).to_be_visible()
    await owner.expect_no_faults("fleet with a drained replica")
    await engines[0].control(hang_after_tokens=-1)
    await weigh(row, "Undrain")
    await expect(row.get_by_text("healthy", exact=True)).to_be_visible()
    assert await (await begun_on(deployed, engines, 0))
