"""A cascade of a deployment as `up` starts it, before two embedded engines: who answers, and what the books say."""

from __future__ import annotations

import asyncio
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
from tests.waiting import eventually

pytestmark = pytest.mark.nightly
SHIPPED = str(ROOT / "models" / "slipstream-chat")
MAX_FIRST = 24
SHORT = "What day comes after Monday?"
LONG = "Repeat after me: " + " ".join(["one two three four five six seven eight nine ten"] * 4)
"""Its answer is longer than the small model may write."""


@pytest.fixture(scope="module")
async def engines() -> AsyncIterator[tuple[str, str]]:
    """The large model's, and the small one's."""
    with engine({"model": SHIPPED, "name": "large"}) as large, engine({"model": SHIPPED, "name": "small"}) as small:
        yield large, small


@pytest.fixture(scope="module")
async def running(engines: tuple[str, str]) -> AsyncIterator[Deployment]:
    pools = tuple(
        Pool(name, "embedded", (Replica(f"{name}-0", url),))
        for name, url in zip(("large", "small"), engines, strict=True)
    )
    rules = Cascade("small", when="always", min_confidence=0.01, max_first_tokens=MAX_FIRST, timeout_s=60.0)
    small = Model("small", Tier.CHAT, "small", 4_096, tokenizer=SHIPPED)
    large = Model("large", Tier.CHAT, "large", 4_096, tokenizer=SHIPPED, cascade=rules)
    digest = measured(DesiredState(1, (large, small), pools), large)
    approved = msgspec.structs.replace(rules, approval=Approval("00000000-0000-0000-0000-000000000001", digest))
    models = (msgspec.structs.replace(large, cascade=approved), small)
    environment = {
        "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
    }
    async with deployment(environment=environment, token=TOKEN) as made:
        yield made


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "large", "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


@pytest.fixture
async def client(running: Deployment) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"authorization": f"Bearer {running.key}"}
    async with httpx2.AsyncClient(base_url=running.url, headers=headers, timeout=120) as made:
        yield made


async def booked(running: Deployment, request_id: str, attempts: int) -> list[dict[str, Any]]:
    """The ledger's rows of a request, in the order of its attempts, once there are so many."""
    async with asyncio.timeout(60):
        while True:
            rows = await running.ledger(request_id)
            if len(rows) >= attempts:
                return sorted(rows, key=lambda row: row["attempt"])
            await asyncio.sleep(0.05)


async def test_a_short_answer_is_the_small_models_and_billed_as_such(
    running: Deployment, client: httpx2.AsyncClient
) -> None:
    answer = await client.post("/v1/chat/completions", json=body(SHORT, max_tokens=64))
    assert (answer.status_code, answer.headers["x-slipstream-answered-by"]) == (200, "small")
    usage = answer.json()["usage"]
    [row] = await booked(running, answer.headers["x-request-id"], 1)
    assert (row["model"], row["billed"], row["error_code"]) == ("small", True, None)
    assert (row["prompt_tokens"], row["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])


async def test_an_answer_that_is_too_long_is_handed_over_and_both_usages_are_booked(
    running: Deployment, client: httpx2.AsyncClient
) -> None:
    answer = await client.post("/v1/chat/completions", json=body(LONG, max_tokens=64))
    assert (answer.status_code, answer.headers["x-slipstream-answered-by"]) == (200, "large")
    usage = answer.json()["usage"]
    first, second = await booked(running, answer.headers["x-request-id"], 2)
    assert (first["model"], first["billed"], first["error_code"]) == ("small", False, "handed_over")
    assert 0 < first["completion_tokens"] <= MAX_FIRST + 1
    assert (second["model"], second["billed"], second["error_code"]) == ("large", True, None)
    assert (second["prompt_tokens"], second["completion_tokens"]) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )
    assert first["prompt_tokens"] == second["prompt_tokens"], "the same template and tokenizer"


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.3])
async def test_a_client_that_leaves_before_or_in_the_hand_over_leaves_nothing_behind(
    running: Deployment, client: httpx2.AsyncClient, engines: tuple[str, str], after_s: float
) -> None:
    """Wherever the request was then: nobody is served any more, and nothing is billed beyond what came."""

    async def ask() -> None:
        await client.post("/v1/chat/completions", json=body(LONG, max_tokens=2_000, user=f"leaves-{after_s}"))

    async with running.database() as connection:
        known = {row["request_id"] for row in await connection.fetch("SELECT request_id FROM gateway.usage_events")}
        task = asyncio.create_task(ask())
        await asyncio.sleep(after_s)  # the client's patience, of which nothing below depends
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        async def idle() -> bool:
            return all([await sequences(url) == 0 for url in engines])

        await eventually(idle)
        after = await client.post("/v1/chat/completions", json=body(SHORT, max_tokens=64))
        assert after.status_code == 200
        await booked(running, after.headers["x-request-id"], 1)
        rows = await connection.fetch("SELECT * FROM gateway.usage_events ORDER BY attempt")
    left = [row for row in rows if row["request_id"] not in known | {after.headers["x-request-id"]}]
    assert len({row["request_id"] for row in left}) <= 1
    for row in left:
        gone = row["finish"] in ("client_gone", "not_placed")
        assert gone or (row["model"], row["error_code"]) == ("small", "handed_over"), dict(row)
        assert row["model"] == "large" or not row["billed"], "what the small model wrote nobody saw"


async def sequences(url: str) -> int:
    """What runs and waits in an engine."""
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}) as client:
        lines = (await client.get(f"{url}/metrics")).text.splitlines()
    names = ("sglang:num_running_reqs{", "sglang:num_queue_reqs{")
    found = [int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(names)]
    assert len(found) == 2
    return sum(found)
