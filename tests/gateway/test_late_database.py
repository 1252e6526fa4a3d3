"""A gateway that starts before its database waits and reports it; one with a wrong database does not start."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.errors import ConfigError
from contracts.generation import Tier
from control.fleet.seeding import Seeding
from control.webhooks.outbox import tell_crossing
from gateway import compose
from gateway.config import GatewayConfig
from gateway.desired.store import DesiredStateStore, last_pools
from gateway.instance import InstanceConfig
from gateway.services import Services, Surroundings
from storage.engine import lazy_pool
from tests.waiting import eventually

MODELS = (Model("m", Tier.CHAT, "p", 1_000),)
POOLS = (Pool("p", "embedded", (Replica("r", "http://127.0.0.1:1"),)),)


class LateDatabase:
    """A migrated database that cannot be reached yet."""

    def __init__(self, url: str, folder: Path) -> None:
        self._there = Path(parse_qs(urlsplit(url).query)["host"][0])
        self._socket = folder / "postgres"
        self.url = url.replace(str(self._there), str(self._socket))

    def comes(self) -> None:
        self._socket.symlink_to(self._there)

    def goes(self) -> None:
        self._socket.unlink()


@pytest.fixture
def late(fresh_postgres_url: str, data_folder: Path) -> LateDatabase:
    return LateDatabase(fresh_postgres_url, data_folder.parent)


@contextlib.asynccontextmanager
async def gateway(url: str, folder: Path, **more: Any) -> AsyncIterator[Services]:
    """All of one, with neither a router nor a Valkey."""
    place = InstanceConfig(
        database_url=url,
        valkey_url=f"unix://{folder}/no-valkey",
        journal_folder=folder / "journal",
        instance="g",
        token="token",
        router_token="router",
        pepper=bytes(32),
        trace_retention_days=1,
        **more,
    )
    surroundings = Surroundings(
        seeding=lambda store: Seeding(store, place.instance, place.models, place.pools), crossing=tell_crossing
    )
    async with compose.running_services(GatewayConfig(), place, surroundings) as services:
        yield services


@pytest.fixture(autouse=True)
def nobody_waits_for_the_router(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "ROUTER_ON_START_S", 0)


async def test_a_gateway_waits_for_its_database_and_puts_its_settings_in_force_when_it_comes(
    late: LateDatabase, data_folder: Path, fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with gateway(late.url, data_folder, models=MODELS, pools=POOLS) as services:
        parts = services.readiness()
        assert (parts["database"], parts["keys"], parts["journal"]) == (False, False, True)
        assert "waiting for the database, /readyz reports it" in caplog.text
        late.comes()
        await eventually(lambda: services.readiness()["database"])
        await eventually(lambda: services.catalog.version == 1)
        parts = services.readiness()
        assert (parts["keys"], parts["models"]) == (True, True)
        assert "the database can be reached" in caplog.text
        late.goes()
    connection = await asyncpg.connect(fresh_postgres_url)
    assert await connection.fetchval("SELECT count(*) FROM gateway.desired_states") == 1
    await connection.close()


async def test_a_gateway_without_models_waits_too(late: LateDatabase, data_folder: Path) -> None:
    async with gateway(late.url, data_folder) as services:
        assert not services.readiness()["database"]
        late.comes()
        await eventually(lambda: services.readiness()["database"])


@pytest.mark.parametrize("models", [(), MODELS], ids=["no models", "models"])
async def test_a_database_that_the_server_does_not_have_stops_the_start(
    fresh_postgres_url: str, data_folder: Path, models: tuple[Model, ...]
) -> None:
    head, _, tail = fresh_postgres_url.partition("?")
    with pytest.raises(ConfigError, match='database "nothing" does not exist; correct the URL, or create the'):
        async with gateway(f"{head.rpartition('/')[0]}/nothing?{tail}", data_folder, models=models, pools=POOLS):
            raise AssertionError("it started")


async def test_a_role_that_the_server_does_not_know_stops_the_start(fresh_postgres_url: str, data_folder: Path) -> None:
    _, at, place = fresh_postgres_url.partition("@")
    with pytest.raises(ConfigError, match="correct the URL"):
        async with gateway(f"postgresql://stranger:secret{at}{place}", data_folder) as services:
            raise AssertionError(services.readiness())


async def test_a_server_that_begins_is_waited_for(tmp_path: Path) -> None:
    """It takes connections and says nothing, or hangs up."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / ".s.PGSQL.5432"))
        listener.listen(0)
        url = f"postgresql://u@/d?host={tmp_path}"
        pool = await lazy_pool(url, size=1, connect_timeout_s=0.2, name="test")
        assert await last_pools(pool, url, 0.2) == ()
        pool.terminate()


async def test_a_database_that_refuses_the_settings_is_reported_and_tried_again(
    late: LateDatabase, fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = DesiredStateStore(late.url)
    await store.start()
    seeding = Seeding(store, "g", MODELS, POOLS)
    await seeding.start()
    owner = await asyncpg.connect(fresh_postgres_url.replace("slipstream_app", "slipstream"))
    await owner.execute("ALTER TABLE gateway.desired_states RENAME TO elsewhere")
    late.comes()
    await eventually(lambda: "are not in force, trying again" in caplog.text)
    assert not seeding.done
    await owner.execute("ALTER TABLE gateway.elsewhere RENAME TO desired_states")
    await eventually(lambda: seeding.done)
    assert caplog.text.count("are not in force, trying again") == 1
    await owner.close()
    await seeding.stop()
    await store.stop()
