"""A cascade that is there for spikes: the small model answers while requests for the large one wait, and only then.

The large model's engine is scripted, so that its one place is taken for as long as it should be; the small model is the
shipped one on an embedded engine, and everything else is as `slipstream up` starts it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from benchmarks.engine_process import TOKEN, engine
from contracts.cascade import Approval, Cascade
from contracts.cascade_digest import measured
from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from tests.deployment import ROOT, Deployment, deployment
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.waiting import eventually

pytestmark = pytest.mark.nightly
SHIPPED = str(ROOT / "models" / "slipstream-chat")
SHORT = "What day comes after Monday?"
MANY_TOKENS = 4_000
"""More than the scripted engine writes within the test."""
ANSWERED_BY = "x-slipstream-answered-by"


@pytest.fixture
async def large() -> AsyncIterator[FakeEngineProcess]:
    async with fake_engine(token=TOKEN, model="large") as made:
        await made.control(reset=True, tokens=3)
        yield made


@pytest.fixture
async def running(large: FakeEngineProcess) -> AsyncIterator[Deployment]:
    with engine({"model": SHIPPED, "name": "small"}) as small_url:
        pools = (
            Pool("large", "sglang", (Replica("large-0", large.url),), 1),
            Pool("small", "embedded", (Replica("small-0", small_url),)),
        )
        rules = Cascade("small", when="busy", min_confidence=0.01, timeout_s=60.0, busy_after_s=0.1)
        small = Model("small", Tier.CHAT, "small", 4_096, tokenizer=SHIPPED)
        model = Model("large", Tier.CHAT, "large", 8_192, cascade=rules)
        digest = measured(DesiredState(1, (model, small), pools), model)
        approved = msgspec.structs.replace(rules, approval=Approval("00000000-0000-0000-0000-000000000001", digest))
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode(
                (msgspec.structs.replace(model, cascade=approved), small)
            ).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
        }
        async with deployment(environment=environment, token=TOKEN) as made:
            yield made


async def ask(client: httpx2.AsyncClient, text: str = SHORT, **fields: Any) -> httpx2.Response:
    body = {"model": "large", "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def queued(running: Deployment) -> int:
    """Requests that wait for the large model's place, as the router tells."""
    fleet = msgspec.json.decode(await running.command("fleet", "--json"))
    return sum(int(pool.get("queued", 0)) for pool in fleet["pools"] if pool["name"] == "large")


async def test_the_small_model_answers_while_others_wait_for_the_large_one(
    running: Deployment, large: FakeEngineProcess
) -> None:
    headers = {"authorization": f"Bearer {running.key}"}
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=running.url, headers=headers, timeout=120))
        calm = await ask(client)
        assert calm.headers[ANSWERED_BY] == "large", "nobody waits"

        script = msgspec.json.encode({"tokens": MANY_TOKENS, "inter_token_s": 0.1}).decode()
        holder = asyncio.create_task(ask(client, f"mock:{script}", max_tokens=MANY_TOKENS))
        received = 1 + len(await large.recorded())
        [*_, held] = await large.wait(requests=received)
        waiting = asyncio.create_task(ask(client))

        async def waits() -> bool:
            return await queued(running) > 0

        # a command takes longer to start than a request waits until its model is busy
        await eventually(waits)
        spike = await asyncio.gather(*(ask(client, max_tokens=64) for _ in range(3)))
        assert [one.headers[ANSWERED_BY] for one in spike] == ["small"] * 3
        assert not waiting.done()
        assert len(await large.recorded()) == received, "the large model's engine was asked nothing"
        rows = await running.ledger(*(one.headers["x-request-id"] for one in spike))
        assert [(row["model"], row["billed"], row["error_code"]) for row in rows] == [("small", True, None)] * 3

        await large.finish(held["rid"])
        assert [one.headers[ANSWERED_BY] for one in await asyncio.gather(holder, waiting)] == ["large"] * 2

        async def is_over() -> bool:
            return (await ask(client, max_tokens=64)).headers[ANSWERED_BY] == "large"

        await eventually(is_over)
