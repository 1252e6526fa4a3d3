"""An engine of a deployment that is killed under load and started again, beside one that lives on."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import openai

from contracts.errors import ServiceError
from tests.deployment import Deployment
from tests.e2e.failures.customers import all_below
from tests.e2e.failures.router_view import RouterView

MODEL = "tiny"
SURVIVOR, VICTIM = "fake-0", "fake-1"
"""The replicas' names, as `fake_fleet` gives them."""
CUSTOMERS = 4
GUARD_S = 180.0
"""Against hanging for ever, not a measure: a busy machine may take seconds for a step."""
OURS = all_below(ServiceError)


class Victim(Protocol):
    """An engine's process."""

    async def kill(self) -> None:
        """kill -9, with all its children."""

    async def start(self) -> None:
        """Return once it serves, where it did before."""


async def kill_and_take_back(platform: Deployment, victim: Victim) -> None:
    """Everybody gets a whole answer or one of our errors, all are billed once, and the victim serves again."""
    view = RouterView.of(platform)
    await until(lambda: usable(view, SURVIVOR))
    await until(lambda: usable(view, VICTIM))
    async with Load(platform) as load:
        await load.until(lambda: len(load.answered) >= 4 * CUSTOMERS)
        await victim.kill()
        answered = len(load.answered)
        await until(lambda: gone(view, VICTIM))
        await load.until(lambda: len(load.answered) >= answered + 2 * CUSTOMERS)
        await victim.start()
        await until(lambda: usable(view, VICTIM))
        answered = len(load.answered)
        await until(lambda: serves(platform, VICTIM, load.answered[answered:]))
    rows = await asyncio.wait_for(platform.ledger(*load.answered, *load.broken), GUARD_S)
    by_request: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_request.setdefault(row["request_id"], []).append(row)
    billed = {request_id: [row for row in its if row["billed"]] for request_id, its in by_request.items()}
    assert {request_id for request_id, its in billed.items() if len(its) > 1} == set(), "billed twice"
    for request_id in load.answered:
        [row] = billed[request_id]
        assert (row["outcome"], row["finish"], row["status"]) == ("exact", "complete", 200)
    for request_id in load.broken:
        assert by_request[request_id][-1]["finish"] == "engine_error"


class Load:
    """Customers who stream short answers until the block ends, and note how each request ended."""

    def __init__(self, running: Deployment) -> None:
        self.answered: list[str] = []
        self.broken: list[str] = []
        """Ended by an error event after they had begun."""
        self.refused: Counter[str] = Counter()
        self._client = openai.AsyncOpenAI(
            base_url=f"{running.url}/v1", api_key=running.key, max_retries=0, timeout=GUARD_S
        )
        self._closing = False
        self._customers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._customers = [asyncio.create_task(self._customer(number)) for number in range(CUSTOMERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        try:
            await asyncio.gather(*self._customers)
        finally:
            await self._client.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once it is so; raises what a customer met that is no answer and no error of ours."""
        async with asyncio.timeout(GUARD_S):
            while not holds():
                for customer in self._customers:
                    if customer.done():
                        customer.result()
                await asyncio.sleep(0.02)

    async def _customer(self, number: int) -> None:
        choose = random.Random(number)
        while not self._closing:
            question = f"{choose.randrange(10**9)}: What is the capital of France?"
            asked: dict[str, Any] = {"messages": [{"role": "user", "content": question}], "logit_bias": {"5": 100}}
            try:
                raw = await self._client.chat.completions.with_raw_response.create(
                    model=MODEL, max_tokens=choose.randrange(2, 60), stream=True, **asked
                )
            except openai.APIStatusError as error:
                assert error.code in OURS, error
                self.refused[str(error.code)] += 1
                await asyncio.sleep(0.1)  # as a customer does
                continue
            request_id = raw.headers["x-request-id"]
            try:
                finish = [chunk.choices[0].finish_reason async for chunk in raw.parse()][-1]
                assert finish == "length"
                self.answered.append(request_id)
            except openai.APIError as error:
                assert type(error) is openai.APIError, "a connection that breaks off tells nobody anything"
                assert error.code in OURS, error
                self.broken.append(request_id)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return once other processes have brought it about."""
    async with asyncio.timeout(GUARD_S):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def usable(view: RouterView, replica_id: str) -> bool:
    """Whether the router gives it leases."""
    fleet = await view.describe()
    pools = fleet.pools if fleet else ()
    return any(one.usable for pool in pools for one in pool.replicas if one.id == replica_id)


async def gone(view: RouterView, replica_id: str) -> bool:
    return not await usable(view, replica_id)


async def serves(platform: Deployment, replica_id: str, request_ids: list[str]) -> bool:
    """Whether it has answered any of these."""
    rows = await platform.ledger()
    return any(row["replica_id"] == replica_id and row["billed"] for row in rows if row["request_id"] in request_ids)
