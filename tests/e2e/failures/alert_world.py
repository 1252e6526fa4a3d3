"""What the tests of alerts act on, and how causes are told apart from what they make fire."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import openai
import psutil

from tests.deployment import Deployment
from tests.e2e.failures.engine_place import EnginePlace
from tests.prometheus import Prometheus

GUARD_S = 150.0
"""Against hanging for ever, not a measure."""


class World(msgspec.Struct):
    """What causes act on: a deployment on fake engines, and the Prometheus that watches it."""

    running: Deployment
    places: list[EnginePlace]
    """Two of the model `fake`, with four places each."""
    wide: EnginePlace
    """Of the model `wide`, with room for everybody."""
    candidate: EnginePlace
    """Of a pool that no model has: the model `wide` may be released on it."""
    client: openai.AsyncOpenAI
    prometheus: Prometheus

    async def script(self, *places: EnginePlace, **fields: Any) -> None:
        """What these engines do with every request from now on; those of `fake`, when none is given."""
        for place in places or self.places:
            await place.engine.control(**fields)

    async def ask(self) -> None:
        """One chat request, whatever it is answered."""
        await ask(self.client)


async def ask(client: openai.AsyncOpenAI) -> None:
    """One chat request to the model `fake`, whatever it is answered."""
    with contextlib.suppress(openai.APIError):
        await client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "Hello."}], max_tokens=3_000
        )


Cause = Callable[[World], AbstractAsyncContextManager[None]]


class Causes(dict[Cause, tuple[str, ...]]):
    """The alerts that each cause makes fire. In order: an error budget, once spent, stays so for weeks."""

    def of(self, *alerts: str) -> Callable[[Callable[[World], AsyncIterator[None]]], Cause]:
        """Register what makes these alerts fire: inside `async with cause(world)` it lasts."""

        def register(lasting: Callable[[World], AsyncIterator[None]]) -> Cause:
            cause: Cause = asynccontextmanager(lasting)
            self[cause] = alerts
            return cause

        return register


@asynccontextmanager
async def again_and_again(act: Callable[[], Awaitable[object]], at_once: int = 1) -> AsyncIterator[None]:
    """Inside, so many do it without a pause."""

    async def repeat() -> None:
        while True:
            await act()

    tasks = [asyncio.create_task(repeat()) for _ in range(at_once)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


@asynccontextmanager
async def scripted(world: World, at_once: int, **fields: Any) -> AsyncIterator[None]:
    """Inside, engines do so, and so many customers ask; at the end engines are quick again."""
    await world.script(**fields)
    try:
        async with again_and_again(world.ask, at_once):
            yield
    finally:
        await world.script(reset=True)


@asynccontextmanager
async def stopped(pid: int) -> AsyncIterator[None]:
    """Inside, a process and its children stand still."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in family:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


async def fires(watching: Prometheus, *alerts: str, among: bool = True) -> None:
    """Return once all of these fire, each with its sentences; or, unless `among`, once none does."""
    firing: dict[str, dict[str, str]] = {}
    try:
        async with asyncio.timeout(GUARD_S):
            while True:
                firing = {alert["labels"]["alertname"]: alert["annotations"] for alert in await watching.firing()}
                if set(alerts) <= firing.keys() if among else not set(alerts) & firing.keys():
                    break
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{alerts} {'do not fire' if among else 'fire without cause'}; firing: {firing}") from None
    for alert in alerts if among else ():
        said = " ".join(firing[alert].values())
        assert "<error" not in said, said
        assert "<no value>" not in said, said
