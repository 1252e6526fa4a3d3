"""Samples in a real PostgreSQL: whole, once, without a word of text; and a database that goes away."""

from __future__ import annotations

import logging
from typing import Any

import asyncpg
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.observability.metrics import GatewayMetrics
from gateway.prefixes import store as store_module
from gateway.prefixes.config import PrefixesConfig
from gateway.prefixes.observer import Observed, PrefixObserver, PrefixSample
from gateway.prefixes.store import PrefixSamples
from gateway.prefixes.template import PrefixDigests
from tests.databases import as_owner
from tests.gateway.prefixes.prompts import asked, message, tool

DROPPED = "slipstream_prefix_samples_dropped_total"


def samples_on(pool: asyncpg.Pool[Any], registry: CollectorRegistry | None = None, **more: Any) -> PrefixSamples:
    config = PrefixesConfig(flush_s=60, **more)
    metrics = GatewayMetrics(registry or CollectorRegistry())
    return PrefixSamples(pool, metrics, PrefixObserver(PrefixDigests(b"secret")), config)


def conversation(turns: int = 3) -> list[Observed]:
    messages, made = [message("system", "You know the secret word. " * 30)], []
    for n in range(turns):
        messages = [*messages, message("user", f"xyzzy {n} " * 30)]
        made.append(asked(messages, [tool("plugh")]))
        messages.append(message("assistant", "plover"))
    return made


def put(samples: PrefixSamples, requests: list[Observed]) -> None:
    for each in requests:
        samples.add(each.request_id, each.caller, each.endpoint, each.prepared)


async def stored(pool: asyncpg.Pool[Any]) -> list[PrefixSample]:
    rows = await pool.fetch("SELECT * FROM gateway.prefix_samples ORDER BY turn")
    named = [
        {**row, "organization_id": str(row["organization_id"]), "project_id": str(row["project_id"])} for row in rows
    ]
    return [msgspec.convert({key: row[key] for key in PrefixSample.__struct_fields__}, PrefixSample) for row in named]


async def test_a_row_holds_what_was_observed_and_no_text(pool: asyncpg.Pool[Any]) -> None:
    requests, again = conversation(), PrefixObserver(PrefixDigests(b"secret"))
    samples = samples_on(pool)
    put(samples, requests)
    await samples.stop()
    found = await stored(pool)
    assert found == [again.observe(each) for each in requests]
    assert [sample.turn for sample in found] == [1, 2, 3]
    assert len(found[-1].blocks) == found[-1].prompt_tokens // 512 >= 2
    written = await pool.fetchval("SELECT string_agg(s::text, '') FROM gateway.prefix_samples s")
    assert not any(word in written for word in ("xyzzy", "plover", "plugh", "secret"))


async def test_a_database_that_is_away_is_told_of_once_and_gets_all_later(
    fresh_postgres_url: str, pool: asyncpg.Pool[Any], caplog: pytest.LogCaptureFixture
) -> None:
    owner = await asyncpg.connect(as_owner(fresh_postgres_url))
    samples, requests = samples_on(pool), conversation(6)
    with caplog.at_level(logging.WARNING, "gateway.prefixes.store"):
        await owner.execute("ALTER TABLE gateway.prefix_samples RENAME TO away")
        for each in requests:
            put(samples, [each])
            await samples.flush()
        assert len(caplog.records) == 1
        await owner.execute("ALTER TABLE gateway.away RENAME TO prefix_samples")
        await samples.flush()
    assert [sample.request_id for sample in await stored(pool)] == [each.request_id for each in requests]
    await owner.close()


@pytest.mark.parametrize("bound", ["MAX_ENDED", "MAX_WAITING"])
async def test_what_is_too_much_is_dropped_and_counted(
    pool: asyncpg.Pool[Any], monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(store_module, bound, 2)
    registry = CollectorRegistry()
    samples = samples_on(pool, registry)
    put(samples, conversation(5))
    await samples.flush()
    assert len(await stored(pool)) == 2
    assert registry.get_sample_value(DROPPED) == 3


async def test_prompts_that_wait_are_bounded_by_their_tokens(
    pool: asyncpg.Pool[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, requests = CollectorRegistry(), conversation(4)
    monkeypatch.setattr(store_module, "MAX_ENDED_TOKENS", requests[0].prepared.prompt_tokens + 1)
    samples = samples_on(pool, registry)
    put(samples, requests)
    await samples.flush()
    assert len(await stored(pool)) == 2  # the second one begins below the bound
    assert registry.get_sample_value(DROPPED) == 2
    for each in requests[2:]:
        put(samples, [each])
        await samples.flush()
    assert len(await stored(pool)) == 4


async def test_switched_off_it_keeps_nothing(pool: asyncpg.Pool[Any]) -> None:
    samples = samples_on(pool, enabled=False)
    put(samples, conversation())
    await samples.stop()
    assert await stored(pool) == []
