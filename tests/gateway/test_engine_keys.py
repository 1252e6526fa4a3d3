"""Pools' own keys beside customers' requests: asking after a crash, counters, desired states that cannot be had."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import NoEngine
from contracts.generation import Tier
from contracts.usage import Usage
from control.billing.reconciliation import EngineCounters
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from gateway import compose
from gateway.compose import DesiredStateFollower
from gateway.desired.reports import Reporter
from gateway.desired.store import DesiredStateStore, last_pools
from gateway.metering.journal.engine_usage import EngineUsage
from gateway.serving.model_catalog import ModelCatalog
from router.client import RouterClient
from router.client_config import RouterClientConfig
from storage.engine import lazy_pool
from tests.desired_states import put
from tests.serving import serving
from tests.waiting import eventually

METRICS = "".join(f"sglang:{name}_tokens_total 7\n" for name in ("prompt", "cached", "generation"))


class Engine:
    """Speaks as much SGLang as is asked outside of requests; remembers who asked."""

    def __init__(self) -> None:
        self.url = ""
        self.authorizations: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("authorization", ""))
        if request.path == "/metrics":
            return web.Response(text=METRICS)
        return web.json_response({"usage": {"prompt_tokens": 3, "completion_tokens": 2}})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    async with serving(made.answer) as made.url:
        yield made


def keys(**environ: str) -> EngineKeys:
    return EngineKeys(lambda: "token", environ)


async def test_recovery_asks_with_the_pools_key_and_a_forged_place_gets_none(engine: Engine) -> None:
    known = keys(OWN="own")
    connections = EngineConnections(known)
    ask = EngineUsage(connections, 30)
    try:
        with pytest.raises(NoEngine):
            await ask(engine.url, "embedded", "req_1", 0)
        assert engine.authorizations == []
        known.follow((Pool("p", "embedded", (Replica("r", engine.url),), api_key_env="OWN"),))
        assert await ask(engine.url, "embedded", "req_1", 0) == Usage(3, 2)
        assert engine.authorizations == ["Bearer own", "Bearer own"]  # stopped, then asked
    finally:
        await connections.close()


@pytest.mark.parametrize("driver", ["sglang", "embedded"])
async def test_counters_are_asked_with_the_pools_key_else_with_what_opens_counters_only(
    engine: Engine, driver: str
) -> None:
    replica = Replica("r", engine.url)
    for pool, sent in (
        (Pool("p", driver, (replica,), api_key_env="OWN"), "Bearer own"),
        (Pool("p", driver, (replica,)), "Bearer metrics" if driver == "embedded" else "Bearer token"),
        (Pool("p", driver, (replica,), api_key_required=False), ""),
    ):
        engine.authorizations.clear()
        known = EngineKeys(lambda: "token", {"OWN": "own"}, lambda: "metrics")
        found = await EngineCounters(lambda known=known: known)([(pool, replica)])  # type: ignore[misc]
        assert found["r"].prompt_tokens == 7
        assert engine.authorizations == [sent]


async def test_the_last_row_tells_whose_keys_a_crash_needs(fresh_postgres_url: str, tmp_path: Path) -> None:
    written = (Pool("p", "sglang", (Replica("r", "http://a:1"),), api_key_env="OWN"),)
    store = DesiredStateStore(fresh_postgres_url)
    await store.start()
    await put(store, DesiredState(0, (Model("m", Tier.CHAT, "p", 1_000),), written))
    await store.stop()
    for url, found in ((fresh_postgres_url, written), (f"postgresql://x@/x?host={tmp_path}", ())):
        pool = await lazy_pool(url, size=1, connect_timeout_s=5.0, name="test")
        try:
            assert await last_pools(pool, url, 5.0) == found
        finally:
            pool.terminate()


async def nothing(_: int) -> None:
    """No earlier state."""


MODELS = (Model("m", Tier.CHAT, "p", 1_000),)
REPLICAS = (Replica("r", "http://127.0.0.1:1"),)
ABSENT = Pool("p", "openai", REPLICAS, api_key_env="ABSENT")


@contextlib.asynccontextmanager
async def following(
    known: EngineKeys | None = None, before: Callable[[int], Awaitable[DesiredState | None]] = nothing
) -> AsyncIterator[tuple[DesiredStateFollower, ModelCatalog, Reporter]]:
    """A gateway's part that follows desired states; its reporter was not started, and tells nobody."""
    catalog, router = ModelCatalog(), RouterClient(RouterClientConfig(), "gateways", "g")
    pool = await lazy_pool("postgresql://127.0.0.1:1/nowhere", size=1, connect_timeout_s=1.0, name="test")
    reporter = Reporter(pool, "g", 1.0)
    follower = DesiredStateFollower(catalog, router, known or keys(), reporter, before)
    yield follower, catalog, reporter
    await follower.stop()
    catalog.close()


async def test_a_start_whose_newest_state_is_refused_serves_by_the_newest_that_is_not() -> None:
    fine = Pool("p", "openai", REPLICAS)
    stored = [DesiredState(number, MODELS, (pool,)) for number, pool in enumerate((fine, fine, ABSENT), 1)]

    async def before(version: int) -> DesiredState | None:
        return next((state for state in reversed(stored) if state.version < version), None)

    async with following(before=before) as (follower, catalog, reporter):
        follower.changed(DesiredState(4, MODELS, (ABSENT,)))
        await follower.settled()
        assert catalog.version == 2
        assert (reporter._version, reporter._refused[0]) == (2, 4)


async def test_a_desired_state_whose_key_is_missing_leaves_the_old_one_in_force(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with following() as (follower, catalog, _):
        for number, pool in enumerate((Pool("p", "openai", REPLICAS), ABSENT), 1):
            follower.changed(DesiredState(number, MODELS, (pool,)))
            await follower.settled()
            assert catalog.version == 1
    refused = "desired state 2 (models and pools) is refused and will be retried; the version in force stays"
    assert f"{refused}: pools.p.api_key_env: the environment variable ABSENT is not set" in caplog.text
    assert "ABSENT" not in os.environ


async def test_a_desired_state_that_waits_for_a_file_takes_nothing_from_what_serves_and_comes_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compose, "REFUSED_PAUSE_S", 0.01)
    known, late = keys(OLD="old"), tmp_path / "key"
    async with following(known) as (follower, catalog, _):
        follower.changed(DesiredState(1, MODELS, (Pool("p", "openai", REPLICAS, api_key_env="OLD"),)))
        await follower.settled()
        renewed = Pool("p", "openai", REPLICAS, api_key_file=str(late))
        added = Pool("q", "openai", (Replica("s", "http://127.0.0.1:2"),), api_key_env="OLD")
        follower.changed(DesiredState(2, MODELS, (renewed, added)))
        await follower.settled()
        assert (catalog.version, known.key_for("http://127.0.0.1:1", "p")) == (1, "old")
        assert known.key_for("http://127.0.0.1:2", "q") == "old"  # another gateway may have made it serve
        late.write_text("new")
        await eventually(lambda: catalog.version == 2)
        await eventually(lambda: known.key_for("http://127.0.0.1:1", "p") == "new")


async def test_a_desired_state_that_fails_to_load_holds_nobody_up_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with following() as (follower, catalog, _):
        load, failing = catalog.load, asyncio.Event()
        failing.set()

        async def unlucky(state: DesiredState) -> None:
            if failing.is_set():
                raise MemoryError
            await load(state)

        monkeypatch.setattr(catalog, "load", unlucky)
        follower.changed(DesiredState(1))
        await follower.settled()
        assert catalog.version == 0
        failing.clear()
        await eventually(lambda: catalog.version == 1)
        await follower.settled()
    assert "desired state failed; restarting in" in caplog.text
