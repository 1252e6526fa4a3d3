"""Engines' counters beside the ledger: bounds, restarts, and drift that is found."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import mint
from contracts.desired_state import Pool, Replica
from contracts.errors import EngineFailed
from control.billing.engine_metrics import EngineCounterMetrics
from control.billing.reconciliation import EngineCounters, Finding, reconcile
from control.billing.windows import Sample, continues, drift, windows
from engines.drivers.base import EngineRequest
from engines.drivers.counters import EngineCounts, EngineStages
from engines.drivers.sglang import SGLangDriver
from engines.http.keys import EngineKeys
from gateway.desired import document
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.drift_watch import DriftWatch
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.metrics import MeteringMetrics
from storage.engine import lazy_pool
from tests.fakes.process import WAIT_S, FakeEngineProcess, fake_engine
from tests.gateway.metering.samples import closed, opened, value
from tests.waiting import eventually


def sample(at: float, tokens: int, *, on: bool = True) -> Sample:
    return Sample(at, EngineCounts(tokens, 0, tokens), on)


def test_windows_lie_between_restarts_and_follow_each_other() -> None:
    samples = [
        sample(0, 0, on=False), sample(10, 5), sample(20, 9), sample(25, 9),
        sample(30, 2, on=False), sample(40, 6),
        sample(50, 0, on=False), sample(55, 1),
    ]  # fmt: skip
    found = [(one.begin, one.end, one.completion_tokens) for one in windows(samples, 15, 0)]
    assert found == [(0, 20, 9), (20, 25, 0), (30, 40, 4)]
    assert [(one.begin, one.end) for one in windows(samples, 15, 20)] == [(20, 25), (30, 40)]


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9), st.booleans()), max_size=40), st.integers(0, 60))
def test_windows_never_overlap_or_lose_what_lies_between_restarts(
    steps: list[tuple[int, int, bool]], least: int
) -> None:
    at, total, samples = 0, 0, [sample(0, 0, on=False)]
    for wait, grown, on in steps:
        at, total = at + wait, total + grown if on else grown
        samples.append(sample(at, total, on=on))
    found = list(windows(samples, least, 0))
    assert all(one.end <= other.begin for one, other in pairwise(found))
    assert all(one.completion_tokens >= 0 for one in found)
    counted = sum(
        later.counts.completion_tokens - earlier.counts.completion_tokens
        for earlier, later in pairwise(samples)
        if later.continues and later.sampled_at <= (found[-1].end if found else 0)
    )
    assert sum(one.completion_tokens for one in found) == counted


def test_drift_is_how_far_a_count_lies_outside() -> None:
    assert [drift(count, 10, 20) for count in (0, 9, 10, 15, 20, 21, 50)] == [-10, -1, 0, 0, 0, 1, 30]


def test_counters_that_fall_are_a_restart() -> None:
    one = EngineCounts(5, 1, 5)
    assert continues(one, one)
    assert continues(one, EngineCounts(6, 1, 5))
    assert not continues(None, one)
    for fallen in (EngineCounts(4, 1, 9), EngineCounts(9, 0, 9), EngineCounts(9, 9, 4)):
        assert not continues(one, fallen)
    told = msgspec.structs.replace(one, stages=EngineStages(1.0, 1.0, 1, 0))
    assert continues(one, told)
    assert continues(told, one)
    assert not continues(told, msgspec.structs.replace(one, stages=EngineStages(0.5, 1.0, 1, 0)))


def test_counters_are_summed_over_ranks_and_sources() -> None:
    page = b"""# HELP sglang:prompt_tokens_total x
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m",tp_rank="0"} 1.2e+03
sglang:prompt_tokens_total{model_name="m",tp_rank="1"} 34.0
sglang:generation_tokens_total{model_name="m"} 7.0
sglang:cached_tokens_total{cache_source="device"} 5.0
sglang:cached_tokens_total{cache_source="host"} 6.0
sglang:generation_tokens_total_other 99
"""
    driver = SGLangDriver()
    counts = driver.parse_counts(page)
    assert (counts.prompt_tokens, counts.cached_tokens, counts.completion_tokens) == (1_234, 11, 7)
    for unreadable in (b"", b"{}", b"sglang:prompt_tokens_total many"):
        with pytest.raises(EngineFailed):
            driver.parse_counts(unreadable)


class Deployment:
    """A database that knows one replica, and the fake engine behind it."""

    def __init__(self, url: str, pool: asyncpg.Pool[Any], engine: FakeEngineProcess) -> None:
        self.url = url
        self.pool = pool
        self.engine = engine
        self.ledger = Ledger(pool)

    async def generate(self, tokens: int) -> Closed:
        """Let the engine serve one request; its row, not yet in the ledger."""
        row = opened()
        name = row.request_id
        body = {
            "model": "m",
            "prompt": "x" * 40,
            "rid": name,
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        request = EngineRequest("POST", "/v1/completions", msgspec.json.encode(body))
        await self.engine.control(tokens=10_000, inter_token_s=0.0)
        await self.engine.connections.fetch(self.engine.url, request, WAIT_S, 1 << 24)
        [record] = await self.engine.recorded(name)
        done = closed(row, record["tokens"])
        usage = msgspec.structs.replace(
            done.usage, prompt_tokens=record["prompt_tokens"], completion_tokens=record["tokens"]
        )
        return msgspec.structs.replace(done, usage=usage, replica_id="one")

    async def reconcile(self, ask: Any = None, sampled: Any = None) -> list[Finding]:
        """One run of the task, with nothing to wait for."""
        ask = ask or EngineCounters(lambda: EngineKeys(lambda: self.engine.token, {}))
        return await asyncio.to_thread(reconcile, self.url, ask, window_s=0, settle_s=0, clocks_s=0, sampled=sampled)

    async def point_at(self, engine: FakeEngineProcess, driver: str = "sglang") -> None:
        self.engine = engine
        state = document.encode((), (Pool("p", driver, (Replica("one", engine.url),)),))
        await self.pool.execute(
            "INSERT INTO gateway.desired_states SELECT coalesce(max(version), 0) + 1, $1::jsonb"
            " FROM gateway.desired_states",
            state,
        )


@pytest.fixture(scope="module")
async def engine() -> AsyncIterator[FakeEngineProcess]:
    async with fake_engine() as running:
        yield running


@pytest.fixture
async def here(fresh_postgres_url: str, engine: FakeEngineProcess) -> AsyncIterator[Deployment]:
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        made = Deployment(fresh_postgres_url, pool, engine)
        await made.point_at(engine)
        yield made


async def test_a_ledger_that_agrees_shows_no_drift(here: Deployment) -> None:
    assert await here.reconcile() == []
    rows = [await here.generate(number + 1) for number in range(5)]
    await here.ledger.insert(rows, "g")
    assert await here.reconcile() == []
    found = await here.pool.fetchrow("SELECT * FROM gateway.reconciliations ORDER BY window_from DESC LIMIT 1")
    assert found["engine_completion_tokens"] == found["ledger_completion_tokens_max"] == 15
    assert found["engine_prompt_tokens"] == found["ledger_prompt_tokens_max"] > 0


async def test_rows_that_are_missing_or_invented_are_drift(here: Deployment) -> None:
    await here.reconcile()
    rows = [await here.generate(10) for number in range(3)]
    await here.ledger.insert(rows[:2], "g")
    [found] = await here.reconcile()
    assert (found.replica_id, found.completion_drift) == ("one", 10)
    assert found.prompt_drift == rows[2].usage.prompt_tokens
    # the row that was on its way arrives: the window is compared again and agrees
    await here.ledger.insert(rows[2:], "g")
    assert await here.reconcile() == []
    assert await here.pool.fetchval("SELECT count(*) FROM gateway.reconciliations WHERE completion_drift <> 0") == 0
    await here.ledger.insert([msgspec.structs.replace(closed(opened(), 500), replica_id="one")], "g")
    [found] = await here.reconcile()
    assert found.completion_drift == -500


async def test_what_was_found_is_shown_in_metrics(here: Deployment) -> None:
    registry = CollectorRegistry()
    watch = DriftWatch(here.pool, MeteringMetrics(registry), every_s=0.01)
    await here.reconcile()
    await here.generate(10)  # its row is lost
    await here.reconcile()
    watch.start()
    await eventually(lambda: value(registry, "slipstream_ledger_drift_tokens", kind="completion") == 10)
    await here.pool.execute(
        "INSERT INTO gateway.usage_verifications VALUES (now(), '2026-03-01', '2026-03-02', 5, 2, 1, 0)"
    )
    await eventually(lambda: value(registry, "slipstream_ledger_wrong_totals") == 3)
    await watch.stop()


async def test_an_engine_that_starts_again_is_no_drift(here: Deployment) -> None:
    await here.reconcile()
    await here.ledger.insert([await here.generate(100)], "g")
    await here.reconcile()
    lost = await here.generate(50)  # counted after the last sample
    await here.ledger.insert([lost], "g")
    async with fake_engine() as next_engine:
        await here.point_at(next_engine)
        assert await here.reconcile() == []
        await here.ledger.insert([await here.generate(7)], "g")
        assert await here.reconcile() == []
        samples = await here.pool.fetch("SELECT continues FROM gateway.engine_counts ORDER BY sampled_at")
        assert [on for (on,) in samples] == [False, True, False, True]
        counted = await here.pool.fetch(
            "SELECT engine_completion_tokens FROM gateway.reconciliations ORDER BY window_from"
        )
        assert [tokens for (tokens,) in counted] == [100, 7]


async def test_a_sample_has_the_stages_that_an_engine_tells(here: Deployment) -> None:
    """Unasked where they are not told; a page that begins at zero again is another process, whatever its tokens say."""
    tokens = EngineCounts(10, 0, 10)
    told = (None, EngineStages(3.0, 1.5, 4, 1), EngineStages(5.0, 2.0, 6, 3), EngineStages(0.5, 0.1, 1, 0))
    answers = iter(told)

    async def ask(_: object) -> dict[str, EngineCounts]:
        return {"one": msgspec.structs.replace(tokens, stages=next(answers))}

    registry, seen = CollectorRegistry(), []
    metrics = EngineCounterMetrics(registry)
    for _ in told:
        await here.reconcile(ask, metrics.sampled)
        labels = {"pool": "p", "replica": "one"}
        seen.append(registry.get_sample_value("slipstream_engine_retractions_total", labels))
    assert seen == [None, 0, 2, 2], "between two samples of one process"
    rows = await here.pool.fetch(
        "SELECT continues, queue_s, prefill_s, requests, retractions FROM gateway.engine_counts ORDER BY sampled_at"
    )
    assert [tuple(row) for row in rows] == [
        (False, None, None, None, None),
        (True, 3.0, 1.5, 4, 1),
        (True, 5.0, 2.0, 6, 3),
        (False, 0.5, 0.1, 1, 0),
    ]


async def test_an_engine_that_does_not_answer_or_has_no_counters_is_left_out(here: Deployment) -> None:
    async with fake_engine() as engine:
        await here.point_at(engine, driver="openai")
        assert await here.reconcile() == []
        assert await here.pool.fetchval("SELECT count(*) FROM gateway.engine_counts") == 0
        await here.point_at(engine)
        engine.kill()
        await engine.process.wait()
        assert await here.reconcile() == []
    assert await here.pool.fetchval("SELECT count(*) FROM gateway.engine_counts") == 0


def long_ago(tokens: int) -> Closed:
    """An attempt that began an hour ago and ends now; its prompt is as long as its output, as both counters show."""
    began = time.time() - 3_600
    row = closed(msgspec.structs.replace(opened(mint(began)), opened_at=began), tokens)
    usage = msgspec.structs.replace(row.usage, prompt_tokens=tokens, completion_tokens=tokens)
    return msgspec.structs.replace(row, usage=usage, replica_id="one")


async def test_what_is_under_way_at_an_edge_is_no_drift(here: Deployment) -> None:
    """Attempts of random length, sampled at random: the engine counts as it generates, the ledger at the end."""
    choose = random.Random(8)
    total = 0

    async def ask(_: object) -> dict[str, EngineCounts]:
        return {"one": EngineCounts(total, 0, total)}

    running: list[int] = []
    for _ in range(12):
        for _ in range(choose.randrange(4)):
            running.append(0)
        for index, done in enumerate(running):
            grown = choose.randrange(30)
            running[index] = done + grown
            total += grown
        if running and choose.random() < 0.6:
            tokens = running.pop(choose.randrange(len(running)))
            await here.ledger.insert([long_ago(tokens)], "g")
        for finding in await here.reconcile(ask):
            # only what is still running can be missing, and it is not there yet
            assert 0 < finding.completion_drift <= sum(running)
    await here.ledger.insert([long_ago(tokens) for tokens in running], "g")
    assert await here.reconcile(ask) == []
