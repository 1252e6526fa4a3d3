"""Texts where prompts differ: of organizations that want it, the place itself; of others nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.generation import ChatPrompt
from control.prefixes.rollup import forget
from gateway.observability.metrics import GatewayMetrics
from gateway.prefixes.config import PrefixesConfig
from gateway.prefixes.difference import Cause, Difference, Part
from gateway.prefixes.excerpt import BEFORE_CHARACTERS, CHARACTERS, Excerpt, excerpt
from gateway.prefixes.observer import PrefixObserver
from gateway.prefixes.store import PrefixSamples
from gateway.prefixes.template import PrefixDigests
from storage.engine import lazy_pool
from tests.gateway.prefixes.prompts import ACME, OTHER, asked, message, tool

RULES = "Answer from the handbook alone. " * 12
SYSTEM = Difference(Cause.DATE, Part.SYSTEM)


@pytest.fixture
async def pool(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    pool = await lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5)
    for organization_id, wanted in ((ACME, True), (OTHER, False)):
        await pool.execute(
            "INSERT INTO gateway.organizations (id, name, store_prompts) VALUES ($1, 'o', $2)", organization_id, wanted
        )
    yield pool
    pool.terminate()


def samples_on(pool: asyncpg.Pool[Any]) -> PrefixSamples:
    observer = PrefixObserver(PrefixDigests(b"secret"))
    return PrefixSamples(pool, GatewayMetrics(CollectorRegistry()), observer, PrefixesConfig(flush_s=60))


def ask(samples: PrefixSamples, opening: str, organization_id: str = ACME, *, wanted: bool = True) -> None:
    request = asked([message("system", f"{opening} {RULES}"), message("user", "hi")], organization_id=organization_id)
    samples.add(request.request_id, request.caller, request.endpoint, request.prepared, texts_stored=wanted)


async def stored(pool: asyncpg.Pool[Any]) -> list[tuple[str, str, str | None, str]]:
    rows = await pool.fetch("SELECT * FROM gateway.prefix_texts ORDER BY request_id")
    return [(str(row["organization_id"]), row["cause"], row["earlier"], row["later"]) for row in rows]


async def test_both_texts_are_kept_of_a_tenant_that_wants_it_and_of_no_other(pool: asyncpg.Pool[Any]) -> None:
    samples = samples_on(pool)
    for day in (21, 22, 23):
        ask(samples, f"Today is 2026-11-{day}.")
        ask(samples, f"Today is 2026-11-{day}.", OTHER, wanted=False)
    await samples.flush()
    ((organization, cause, earlier, later),) = await stored(pool)  # one a minute of the same kind
    assert (organization, cause) == (ACME, "date")
    assert (earlier or "").startswith("Today is 2026-11-21.")
    assert later.startswith("Today is 2026-11-22.")
    assert len(later) == CHARACTERS
    written = await pool.fetchval("SELECT string_agg(s::text, '') FROM gateway.prefix_samples s")
    assert "Today" not in written


async def test_who_has_turned_it_off_meanwhile_is_not_stored_and_what_was_is_gone(pool: asyncpg.Pool[Any]) -> None:
    samples = samples_on(pool)
    ask(samples, "Today is 2026-11-21.")
    ask(samples, "Today is 2026-11-22.")
    await samples.flush()
    assert len(await stored(pool)) == 1
    await pool.execute("UPDATE gateway.organizations SET store_prompts = false WHERE id = $1", ACME)
    assert await stored(pool) == []
    ask(samples, "You are a poet.")  # its key was read before
    ask(samples, "You are a clerk.")
    await samples.flush()
    assert await stored(pool) == []
    assert await pool.fetchval("SELECT count(*) FROM gateway.prefix_samples") == 4


async def test_a_text_is_forgotten_with_the_samples(pool: asyncpg.Pool[Any], fresh_postgres_url: str) -> None:
    samples = samples_on(pool)
    ask(samples, "Today is 2026-11-21.")
    ask(samples, "Today is 2026-11-22.\0")
    await samples.flush()
    assert "Today is 2026-11-22. Answer" in (await stored(pool))[0][3]
    await pool.execute("UPDATE gateway.prefix_texts SET recorded_at = now() - interval '8 days'")
    forget(fresh_postgres_url, sample_retention_days=7, share_retention_days=400)
    assert await stored(pool) == []


@given(st.text("ab", max_size=600), st.text("ab", max_size=600))
def test_an_excerpt_begins_alike_and_shows_the_first_difference(earlier: str, later: str) -> None:
    found = excerpt(SYSTEM, earlier, ChatPrompt((message("system", later),)))
    if earlier == later:
        assert found is None
        return
    assert found is not None
    assert found.earlier is not None
    assert found.earlier in earlier
    assert found.later in later
    assert found.earlier != found.later
    shared = next(
        (at for at, (a, b) in enumerate(zip(found.earlier, found.later, strict=False)) if a != b),
        min(len(found.earlier), len(found.later)),
    )
    assert shared <= BEFORE_CHARACTERS
    assert max(len(found.earlier), len(found.later)) <= CHARACTERS


def test_of_tools_and_messages_the_later_one_is_shown() -> None:
    prompt = ChatPrompt((message("system", "s"), message("user", "first"), message("user", "x" * 999)), (tool("open"),))
    shown = excerpt(Difference(Cause.MESSAGE_CHANGED, Part.MESSAGE, 1), None, prompt)
    assert shown == Excerpt(None, f'{{"role":"user","content":"{"x" * 999}'[:CHARACTERS])
    tools = excerpt(Difference(Cause.TOOLS_CHANGED, Part.TOOLS, 0), None, prompt)
    assert tools is not None
    assert '"open"' in tools.later
    assert excerpt(Difference(Cause.TOOLS_CHANGED, Part.TOOLS, 1), None, prompt) is None
    assert excerpt(Difference(Cause.ELSEWHERE), None, prompt) is None
