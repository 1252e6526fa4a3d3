"""Clients that leave, or type on, at random moments: nothing is left anywhere, and every token is accounted for.

The embedded engine as a process, the real router with a queue, and limits in Valkey. The last line printed is JSON: how
long the engine went on for nobody, `cancel_p50_ms` and `cancel_p99_ms`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest

from contracts.generation import Tier
from contracts.lease import Engine, Lease, LeaseRequest
from contracts.usage import Outcome
from engines.drivers.embedded import EmbeddedDriver
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from gateway.auth.key_record import KeyRecord
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import CONCURRENCY
from gateway.wire.config import RequestConfig
from gateway.wire.mistral.format import FimFormat
from router.client import RouterClient
from router.server import RouterServer
from tests.engines.embedded.engine_process import TOKEN, Process, healthy
from tests.engines.embedded.tiny import CONFIG, SHIPPED, random_weights, write_model
from tests.gateway.limits.store import MeasuredLimiter
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import KEY, Harness
from tests.gateway.serving.test_with_router import routed
from tests.waiting import eventually

FIM = FimFormat(RequestConfig())
AT_ONCE = 12
PLACES = 4
"""Of the engine: the others wait in the router's queue."""
LEVELS = Levels.of(
    KEY.caller.organization_id,
    [Rule(Level.KEY, "disconnects", None, Limits(requests_per_minute=10**6, max_concurrency=10**4))],
)
MOMENTS = ("queue", "prefill", "text")
DRIVER = EmbeddedDriver()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Random weights with the code model's tokens; a prompt takes many steps."""
    config = {**CONFIG, "vocab_size": 4_096, "max_position_embeddings": 4_096}
    folder = write_model(tmp_path_factory.mktemp("models") / "fake", config, random_weights(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(SHIPPED / "slipstream-code" / name, folder / name)
    process = Process(model=str(folder), scheduler={"max_batch_tokens": 64, "max_running": PLACES})
    yield process
    process.child.kill()
    process.child.communicate()


class Moments:
    """Tells when a request has come to where its client is to end it."""

    def __init__(self, platform: Harness, router: RouterClient, chance: random.Random) -> None:
        self._chance = chance
        self._waiting: dict[tuple[str, str], Callable[[], None]] = {}
        self._router = router
        self._placed = platform.journal.placed
        self.release = router.release
        platform.use_router(self)
        platform.journal.placed = self._place  # type: ignore[method-assign]

    def at(self, request_id: str, moment: str, then: Callable[[], None]) -> None:
        self._waiting[request_id, moment] = then

    async def acquire(self, ask: LeaseRequest) -> Lease:
        self._reached(ask.request_id, "queue")
        return await self._router.acquire(ask)

    def _place(self, record: Any) -> None:
        self._placed(record)
        self._reached(record.request_id, "prefill")

    def first_token(self, lease_id: str, ttft_s: float, cached_tokens: int) -> None:
        self._router.first_token(lease_id, ttft_s, cached_tokens)
        self._reached(lease_id.rpartition("-")[2], "text")

    def _reached(self, request_id: str, moment: str) -> None:
        if (then := self._waiting.pop((request_id, moment), None)) is not None:
            asyncio.get_running_loop().call_later(self._chance.random() * 0.01, then)


class Run:
    """All that is given back is looked at when it has ended."""

    def __init__(self, platform: Harness, moments: Moments, limiter: MeasuredLimiter, chance: random.Random) -> None:
        self._platform = platform
        self._moments = moments
        self._chance = chance
        self._room = asyncio.Semaphore(AT_ONCE)
        self.limiter = limiter
        self.cancel_s: list[float] = []
        self.ended: Counter[str] = Counter()
        platform.pipeline._limits._limiter = limiter
        platform.metrics.aborted = self._aborted  # type: ignore[method-assign]

    async def one(self, number: int) -> None:
        """A request that is left, or typed on, at one of the moments; some are answered."""
        chance = self._chance
        prefix = f"# {number}\n" + "value = first + second\n" * chance.choice([1, 10, 40])
        how = chance.choice(["leaves", "leaves", "types on", "stays"])
        moment = chance.choice(MOMENTS)
        client, newer = Client(), asyncio.Event()
        then = {"leaves": client.leave, "types on": newer.set, "stays": lambda: None}[how]
        async with self._room, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve(client, prefix, lambda name: self._moments.at(name, moment, then), newer.set))
            if how == "types on":
                await newer.wait()
                last = Client()
                tasks.create_task(self._serve(last, prefix + "a", lambda _: None, lambda: None))
        self.ended[how] += 1
        if not client.connection.gone:
            assert client.answer.complete
            shed = client.answer.status == 503 and client.answer.json["error"]["code"] == "overloaded"
            assert client.answer.status == 200 or shed, client.answer.body

    async def _serve(
        self, client: Client, prefix: str, began: Callable[[str], None], ended: Callable[[], None]
    ) -> None:
        platform, stream = self._platform, self._chance.random() < 0.5
        asked = {"model": "m", "prompt": prefix, "suffix": "\nlast = 1\n", "max_tokens": 24, "stream": stream}
        request = await platform.request(FIM, msgspec.json.encode(asked))
        request.key = KeyRecord(KEY.caller, LEVELS)
        began(request.request_id)
        await platform.run(request, client)
        ended()

    def _aborted(self, cause: str, took_s: float) -> None:
        self.cancel_s.append(took_s)


@contextlib.asynccontextmanager
async def running(engine: Process, valkey_url: str, seed: int) -> AsyncIterator[tuple[Run, RouterServer, RouterClient]]:
    place = Engine("engine-0", engine.url, "embedded", "fake", "pool")
    # a busy engine's final count may come later than a gateway waits for it, which then bills a lower bound
    platform = Harness((), (place,), abort_drain_s=20.0)
    platform.connections = platform.serving.generator._connections = EngineConnections(OneKey(TOKEN))
    limiter = MeasuredLimiter(valkey_url, key_prefix=f"disconnects{seed}")
    await limiter.start()
    try:
        async with routed(platform, PLACES, TOKEN) as (server, router):
            chance = random.Random(seed)
            yield Run(platform, Moments(platform, router, chance), limiter, chance), server, router
    finally:
        await limiter.stop()
        await platform.connections.close()


@pytest.mark.parametrize(
    "count", [100, pytest.param(10_000, marks=pytest.mark.nightly)], ids=["100 requests", "10,000 requests"]
)
async def test_nothing_is_left_of_clients_that_leave_or_type_on(
    engine: Process, valkey_url: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    await healthy(engine)
    async with running(engine, valkey_url, count) as (run, server, router):
        platform = run._platform
        before = await _counted(platform, engine)
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(run.one(number))
        # on the engine
        ask = DRIVER.load()
        assert ask is not None
        _, answer = await platform.connections.fetch(engine.url, ask, 5.0)
        load = DRIVER.parse_load(answer)
        assert (load.running, load.waiting) == (0, 0)
        # at the router
        assert (router.book.live, router.book.pending) == ({}, {})
        fleet = server.dispatcher.fleet
        await eventually(lambda: sum(replica.leases for replica in fleet.replicas.values()) == 0)
        assert [len(pool.queue) for pool in fleet.pools.values()] == [0]
        # in the limits
        await run.limiter.drain()
        assert run.limiter.open_reservations == 0
        assert (await run.limiter.left(LEVELS, Tier.CHAT))[CONCURRENCY] == 0, "requests running"
        # in the gateway
        assert len(platform.supersession) == 0
        records = platform.journal.records
        assert Counter(record.key for record in records) == platform.journal.opened_keys
        assert not platform.idle._waits
        # in the books
        assert {record.outcome for record in records} == {Outcome.EXACT}
        used = [record.usage for record in records]
        prompt, cached, generated = [
            now - then for now, then in zip(await _counted(platform, engine), before, strict=True)
        ]
        assert sum(usage.completion_tokens for usage in used) == generated
        # who leaves while a prompt is computed pays for it, and the engine counts prompts that it has answered
        answered = [usage for usage in used if usage.completion_tokens]
        assert sum(usage.prompt_tokens for usage in answered) <= prompt <= sum(usage.prompt_tokens for usage in used)
        assert sum(usage.cached_tokens for usage in answered) <= cached <= sum(usage.cached_tokens for usage in used)
        stages = {name: platform.sample("slipstream_superseded_total", stage=name) for name in ("queue", "prefill")}
        assert all(stages.values()), "no request was superseded there"
    cancel_ms = sorted(taken_s * 1e3 for taken_s in run.cancel_s)
    with capsys.disabled():
        told = {
            "requests": len(records),
            **dict(run.ended),
            "cancel_p50_ms": round(cancel_ms[len(cancel_ms) // 2], 2),
            "cancel_p99_ms": round(cancel_ms[len(cancel_ms) * 99 // 100], 2),
        }
        print(f"\n{json.dumps(told)}")


async def _counted(platform: Harness, engine: Process) -> tuple[int, int, int]:
    """What the engine says it has computed, found and generated since it started."""
    _, page = await platform.connections.fetch(engine.url, DRIVER.counts(), 5.0)
    counts = DRIVER.parse_counts(page)
    return counts.prompt_tokens, counts.cached_tokens, counts.completion_tokens
