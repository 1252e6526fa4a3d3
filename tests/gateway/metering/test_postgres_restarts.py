from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gateway.metering.journal.records import AttemptKey
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.ledger.shipper import Shipper
from gateway.metering.metrics import MeteringMetrics
from infra.local.child import Child, State
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.postgres import Postgres, create_database
from migrations.run import upgrade
from storage.engine import lazy_pool
from tests.gateway.metering.samples import closed, opened, quick, start, value
from tests.temporary import short_folder
from tests.waiting import eventually


@pytest.fixture
def folder() -> Iterator[DataFolder]:
    path = short_folder()
    folder = DataFolder(path)
    folder.prepare()
    yield folder
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def server(folder: DataFolder) -> AsyncIterator[Child]:
    """A PostgreSQL of this test's own, with everything durable: it is going to be killed."""
    postgres = Postgres(folder, LocalConfig())
    postgres.prepare()
    child = Child(postgres.spec(), folder.log("postgres"))
    child.start()
    await child.ready()
    yield child
    await child.stop()
    postgres.close()


@pytest.mark.parametrize(
    ("how", "restarts"),
    [
        (signal.SIGKILL, 1),
        pytest.param(signal.SIGKILL, 3, marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, 3, marks=pytest.mark.nightly),
    ],
)
async def test_postgres_restarted_while_rows_are_shipped_loses_and_doubles_nothing(
    folder: DataFolder, server: Child, tmp_path: Path, how: signal.Signals, restarts: int
) -> None:
    await create_database(folder.postgres_socket, "ledger")
    url = f"postgresql://slipstream@/ledger?host={folder.postgres_socket}"
    await asyncio.to_thread(upgrade, url)
    registry = CollectorRegistry()
    journal = await start(tmp_path / "gw", quick(segment_bytes=65_536))
    async with lazy_pool(url, size=2, connect_timeout_s=5) as pool:
        shipper = Shipper(journal, Ledger(pool), quick(batch_rows=20), MeteringMetrics(registry))
        shipper.start()
        written: list[AttemptKey] = []
        stopped = asyncio.Event()

        async def load() -> None:
            while not stopped.is_set():
                rows = [closed(opened()) for _ in range(10)]
                for row in rows:
                    journal.opened(row.opened)
                await asyncio.gather(*(journal.closed(row) for row in rows))
                written.extend(row.key for row in rows)

        loading = asyncio.create_task(load())
        for restart in range(1, restarts + 1):
            shipped, errors = _now(registry)
            await eventually(lambda shipped=shipped: _now(registry)[0] > shipped + 100)  # type: ignore[misc]
            assert server.pid is not None
            os.kill(server.pid, how)
            await eventually(lambda errors=errors: _now(registry)[1] > errors)  # type: ignore[misc]
            await eventually(lambda restart=restart: server.restarts == restart and server.state is State.READY)  # type: ignore[misc, arg-type]
        stopped.set()
        await loading
        assert await shipper.drain(60)
        found = await pool.fetch("SELECT request_id, attempt FROM gateway.usage_events")
        assert sorted(tuple(row) for row in found) == sorted(written)
        await shipper.stop()
    await journal.stop()


def _now(registry: CollectorRegistry) -> tuple[float, float]:
    """Rows shipped, and tries that failed."""
    return value(registry, "slipstream_ledger_rows_total"), value(registry, "slipstream_ledger_errors_total")
