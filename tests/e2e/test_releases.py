"""Releases of the chat model on a deployment that lives: two versions behind one alias, under load.

The engines speak what SGLang does, and how fast they do is scripted; everything else is as `slipstream up` starts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx2
import msgspec
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from tests.deployment import Deployment, deployment
from tests.e2e.failures.processes import kill_called
from tests.e2e.release_traffic import LEAVES_S, require_left
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.waiting import eventually

pytestmark = pytest.mark.nightly
TOKEN = "token-of-the-releases"
TTFT_S = 0.05
BASELINE_REQUESTS = 1_100
"""Enough to place a p99 by."""
MIN = "60,80,100"
STAGES = "shadow,10,25,50,100"
KILLED = ("webhooks", "valkey", "gateway-1", "router", "postgres")
"""The worker that moves releases first: until it is back, no stage ends."""
AT_ONCE = 12
ALL_STAGES_S = 500.0
"""A guard: twenty processes are killed and come back."""
DECIDED_S = 240.0
"""A guard: what it takes until a release is decided."""
ENDLESS = "100000"
"""Sessions that no stage will have: the release stays in it until it is rolled back."""
STREAMED_TOKENS = 4_000
"""Of an answer that lasts longer than any test."""
HELD = """
SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'gateway.desired_states'::regclass AND NOT granted)
"""
STATE = """
SELECT state, stage, reason, told, ended_at, model,
       (SELECT document::text FROM gateway.desired_states ORDER BY version DESC LIMIT 1) AS document
  FROM gateway.releases ORDER BY created_at DESC LIMIT 1
"""


class World:
    """A deployment on an old and a new engine, with customers who ask without a pause."""

    def __init__(self, running: Deployment, old: FakeEngineProcess, new: FakeEngineProcess) -> None:
        self.running = running
        self.old, self.new = old, new
        self._sessions = itertools.count()

    async def script(self, *, slower: float = 1.0, **fields: Any) -> None:
        """What the engines do. slower, fields: the candidate."""
        await self.old.control(reset=True, ttft_s=TTFT_S, tokens=4, inter_token_s=0.005)
        plain = {"ttft_s": TTFT_S * slower, "tokens": 4, "inter_token_s": 0.005 * slower}
        await self.new.control(reset=True, **{**plain, **fields})

    @contextlib.asynccontextmanager
    async def customers(self) -> AsyncIterator[None]:
        """Inside, so many ask at once, each time in a conversation of its own."""
        stop = asyncio.Event()
        async with httpx2.AsyncClient(timeout=30) as client:

            async def ask_on() -> None:
                while not stop.is_set():
                    await self._ask(client)

            tasks = [asyncio.create_task(ask_on()) for _ in range(AT_ONCE)]
            try:
                yield
            finally:
                stop.set()
                await asyncio.gather(*tasks)

    async def serve_baseline(self) -> None:
        """The history that thresholds are fixed by."""
        async with self.running.database() as connection, self.customers():

            async def enough() -> bool:
                served = await connection.fetchval("SELECT count(*) FROM gateway.request_traces WHERE status = 200")
                return bool(served >= BASELINE_REQUESTS)

            await eventually(enough)

    async def _ask(self, client: httpx2.AsyncClient) -> None:
        """One request by the model's alias; a process that is being killed may refuse it."""
        body = {
            "model": "chat-latest", "stream": True, "user": f"user-{next(self._sessions)}", "max_tokens": 4,
            "messages": [{"role": "user", "content": "Hello."}],
        }  # fmt: skip
        try:
            headers = {"authorization": f"Bearer {self.running.key}"}
            answer = await client.post(f"{self.running.url}/v1/chat/completions", json=body, headers=headers)
            if answer.status_code >= 500:
                await asyncio.sleep(0.05)
        except httpx2.TransportError:
            await asyncio.sleep(0.05)

    async def start(self, *options: str) -> None:
        await self.running.command(
            "releases", "start", "--model", "chat", "--candidate", "new", "--stages", STAGES, "--least", MIN,
            "--tolerance", "0.15", "--shadow-share", "1", "--shadow-least", "5", *options,
        )  # fmt: skip

    async def newest(self) -> dict[str, Any]:
        """The newest release, with its model as the desired state has it."""
        async with self.running.database() as connection:
            row = await connection.fetchrow(STATE)
        assert row is not None
        models = msgspec.json.decode(row["document"])["models"]
        return {**dict(row), "now": next(model for model in models if model["name"] == "chat")}

    async def serves_customers(self) -> bool:
        """The release is in a stage in which its candidate does."""
        found = await self.newest()
        return bool(found["state"] == "running" and found["stage"] >= 1)

    async def ended(self, timeout_s: float = DECIDED_S) -> dict[str, Any]:
        """The newest release, once it has ended."""
        async with asyncio.timeout(timeout_s):
            while True:
                with contextlib.suppress(OSError, asyncpg.PostgresError):
                    found = await self.newest()
                    if found["ended_at"] is not None:
                        return found
                await asyncio.sleep(0.2)

    async def kill(self, name: str) -> None:
        """kill -9, once it runs; the supervisor starts it again. name: `webhooks` for the worker that has releases."""
        await kill_called(self.running, name)

    async def steps(self) -> list[tuple[int, int]]:
        """The newest release's steps, each from a stage to the same one or another; none is missing or there twice."""
        async with self.running.database() as connection:
            rows = await connection.fetch(
                "SELECT step, stage, to_stage FROM gateway.release_steps WHERE release_id ="
                " (SELECT id FROM gateway.releases ORDER BY created_at DESC LIMIT 1) ORDER BY step"
            )
        assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
        return [(row["stage"], row["to_stage"]) for row in rows]

    async def events(self, event: str) -> int:
        """How often this happened to the newest release."""
        async with self.running.database() as connection:
            found = await connection.fetchval(
                "SELECT count(*) FROM gateway.release_steps WHERE event = $1 AND release_id ="
                " (SELECT id FROM gateway.releases ORDER BY created_at DESC LIMIT 1)",
                event,
            )
        return int(found)

    async def moves(self) -> list[tuple[int, int]]:
        """The newest release's changes of stage."""
        return [(stage, to_stage) for stage, to_stage in await self.steps() if stage != to_stage]

    async def stream_of_candidate(self, client: httpx2.AsyncClient) -> tuple[httpx2.Response, AsyncIterator[str]]:
        """A stream that has begun, of a conversation that the candidate has, and its lines from there on."""
        script = msgspec.json.encode({"tokens": STREAMED_TOKENS, "inter_token_s": 0.05}).decode()
        while True:
            body = {
                "model": "chat-latest", "stream": True, "user": f"long-{next(self._sessions)}",
                "max_tokens": STREAMED_TOKENS, "messages": [{"role": "user", "content": f"mock:{script}"}],
            }  # fmt: skip
            request = client.build_request("POST", f"{self.running.url}/v1/chat/completions", json=body)
            request.headers["authorization"] = f"Bearer {self.running.key}"
            response = await client.send(request, stream=True)
            lines = response.aiter_lines()
            async for line in lines:
                if '"content":" t1"' in line.replace('": "', '":"'):
                    break
            if await self.new.recorded(response.headers["x-request-id"]):
                return response, lines
            await response.aclose()

    async def require_no_traffic(self) -> None:
        """From five seconds after the verdict on the candidate is asked nothing more, though customers go on."""
        began_s = time.monotonic()
        seen = -1
        while True:
            asked = len(await self.new.recorded())
            if asked == seen:
                break
            assert time.monotonic() - began_s < LEAVES_S, "the candidate is still asked"
            seen = asked
            await asyncio.sleep(1.0)
        before = len(await self.old.recorded())
        await self.old.wait(requests=before + 50)
        assert len(await self.new.recorded()) == seen


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with fake_engine(token=TOKEN, model="chat") as old, fake_engine(token=TOKEN, model="chat") as new:
        pools = [
            Pool("old", "sglang", (Replica("old-0", old.url),), 1_000),
            Pool("new", "sglang", (Replica("new-0", new.url),), 1_000),
        ]
        model = Model("chat", Tier.CHAT, "old", 4_096, aliases=("chat-latest",))
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode([model]).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
            "SLIPSTREAM_GATEWAY__TRACE_FLUSH_S": "0.5",
        }
        async with deployment(environment=environment, token=TOKEN) as running:
            made = World(running, old, new)
            await made.script()
            await made.serve_baseline()
            yield made


async def test_a_good_candidate_takes_the_model_over(world: World) -> None:
    await world.start()
    async with world.customers():
        found = await world.ended()
    assert found["state"] == "promoted", found
    assert found["now"]["pool"] == "new"
    assert "canary" not in found["now"]
    assert await world.moves() == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert "all are identical to the stored ones" in await world.running.command("releases", "replay", "chat")


@pytest.mark.parametrize(
    "fault", [{"slower": 1.3}, {"status": 500, "message": "a broken layer"}], ids=["slower", "broken"]
)
async def test_a_worse_candidate_is_rolled_back_and_its_traffic_leaves(world: World, fault: dict[str, Any]) -> None:
    await world.start()
    async with world.customers():
        await eventually(world.serves_customers)
        await world.script(**fault)
        found = await world.ended()
        assert found["state"] == "rolled_back", found
        await world.require_no_traffic()
        await require_left(world.running, found["ended_at"], "old")
    assert found["now"]["pool"] == "old"
    assert "canary" not in found["now"]
    assert "all are identical to the stored ones" in await world.running.command("releases", "replay", "chat")


async def test_a_release_survives_every_process_in_every_stage(world: World) -> None:
    """Killed in each stage, one after the other: worker, Valkey, gateway, router, PostgreSQL; and in the last, which
    begins and ends with the promotion, right after it. The candidate is as good as the baseline, so nothing but its
    promotion is right."""
    # A share of those who ask waits for a process that comes back; that is no evidence about either arm, but it makes
    # latencies so unlike each other that the proof of 15 % would take longer than the killing.
    await world.start("--tolerance", "0.5")
    killed: set[tuple[int, str]] = set()
    found: dict[str, Any] = {}
    async with world.customers():
        began_s = time.monotonic()
        while not found.get("ended_at"):
            assert time.monotonic() - began_s < ALL_STAGES_S, (found, world.running.log("worker")[-3_000:])
            await asyncio.sleep(0.1)
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                found = await world.newest()  # before each kill: what is killed next is killed in this stage
                left = [name for name in KILLED if (found["stage"], name) not in killed]
                if found["state"] == "running" and left:
                    await world.kill(left[0])
                    killed.add((found["stage"], left[0]))
        assert killed == {(stage, name) for stage in range(4) for name in KILLED}
        steps = await world.steps()
        for name in KILLED:
            await world.kill(name)
        before = len(await world.new.recorded())
        await world.new.wait(requests=before + 50)
        found = await world.ended()
        assert await world.steps() == steps, "a release that has ended moves no more"
    assert found["state"] == "promoted", found
    assert found["now"]["pool"] == "new"
    assert "canary" not in found["now"]
    assert await world.moves() == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert "all are identical to the stored ones" in await world.running.command("releases", "replay", "chat")


async def test_a_rollback_survives_every_process_that_it_goes_through(world: World) -> None:
    """Router, gateway, Valkey and at last the release worker itself are killed in the midst of the transaction that
    rolls back, which is held there by a lock on what it is about to write, and each once more behind it."""
    killed = ("router", "gateway-1", "valkey", "webhooks")
    await world.start("--least", ",".join([ENDLESS] * 3))
    async with world.customers():
        await eventually(world.serves_customers)
        async with world.running.database() as connection, connection.transaction():
            # who reads is not kept from it; no stage can be left, so the next who writes rolls back
            await connection.execute("LOCK TABLE gateway.desired_states IN SHARE MODE")
            await world.script(status=500, message="a broken layer")
            async with asyncio.timeout(DECIDED_S):
                while not await connection.fetchval(HELD):  # noqa: ASYNC110  another process' state
                    await asyncio.sleep(0.1)
            for name in killed:
                await world.kill(name)
            assert (await world.newest())["state"] == "running"
        found = await world.ended()
        assert found["state"] == "rolled_back", found
        steps = await world.steps()
        for name in killed:
            await world.kill(name)
        await world.require_no_traffic()
        await require_left(world.running, found["ended_at"], "old")
        assert await world.steps() == steps, "a release that has ended moves no more"
    found = await world.newest()
    assert found["now"]["pool"] == "old"
    assert "canary" not in found["now"]
    assert await world.moves() == [(0, 1)], "it was rolled back from the first stage that serves customers"
    assert await world.events("fail") == 1
    assert "all are identical to the stored ones" in await world.running.command("releases", "replay", "chat")


async def test_a_stream_that_the_candidate_has_begun_ends_in_good_order_behind_a_rollback(world: World) -> None:
    await world.start("--least", ",".join([ENDLESS] * 3))
    async with httpx2.AsyncClient(timeout=60) as client, world.customers():
        await eventually(world.serves_customers)
        response, lines = await world.stream_of_candidate(client)
        await world.new.control(
            status=500, message="a broken layer"
        )  # of what begins from now on; nothing is forgotten
        found = await world.ended()
        assert found["state"] == "rolled_back", found
        await require_left(world.running, found["ended_at"], "old")
        request_id = response.headers["x-request-id"]
        [record] = await world.new.recorded(request_id)
        assert not record["finished"], "it runs on"
        await world.new.finish(request_id)
        rest = [line async for line in lines if line]
        await response.aclose()
    assert rest[-1] == "data: [DONE]"
    assert any('"finish_reason":"stop"' in line.replace('": "', '":"') for line in rest[-4:]), rest[-4:]
    rows = await world.running.ledger(request_id)
    assert [(row["replica_id"], row["billed"], row["error_code"]) for row in rows] == [("new-0", True, None)]


async def test_a_rollback_by_hand_needs_no_worker(world: World) -> None:
    await world.start()
    async with world.customers():
        await eventually(world.serves_customers)
        await world.kill("valkey")
        await world.running.command("releases", "rollback", "chat", "--reason", "the worker has no broker")
        await world.require_no_traffic()
    found = await world.newest()
    assert (found["state"], found["reason"]) == ("rolled_back", "the worker has no broker")
    assert "canary" not in found["now"]
