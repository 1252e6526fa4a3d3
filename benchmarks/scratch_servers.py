"""A PostgreSQL with the schema, and a Valkey, for one benchmark run only."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from infra.local.child import Child, ChildSpec
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.postgres import Postgres, create_database
from infra.local.valkey import Valkey
from migrations.run import upgrade


@contextlib.asynccontextmanager
async def scratch_servers() -> AsyncIterator[tuple[str, str]]:
    """Run both; yields their URLs. PostgreSQL does not wait for the disk."""
    folder = DataFolder(Path(tempfile.mkdtemp(prefix="slip-")))
    folder.prepare()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder.path, ignore_errors=True)
        url = await stack.enter_async_context(scratch_postgres(folder, durable=False))
        await stack.enter_async_context(running(Valkey(folder).spec(), folder.log("valkey")))
        yield url, f"unix://{folder.valkey_socket}"


@contextlib.asynccontextmanager
async def scratch_postgres(folder: DataFolder, *, durable: bool) -> AsyncIterator[str]:
    """Run PostgreSQL; yields the URL of a database with the schema. folder: prepared. durable: waits for the disk."""
    postgres = Postgres(folder, LocalConfig(), durable=durable)
    postgres.prepare()
    try:
        async with running(postgres.spec(), folder.log("postgres")):
            await create_database(folder.postgres_socket, "bench")
            url = f"postgresql://slipstream@/bench?host={folder.postgres_socket}"
            await asyncio.to_thread(upgrade, url)
            yield url
    finally:
        postgres.close()


@contextlib.asynccontextmanager
async def running(spec: ChildSpec, log: Path) -> AsyncIterator[None]:
    """Run a server: ready when the block begins, and ended after it."""
    child = Child(spec, log)
    child.start()
    try:
        await child.ready()
        yield
    finally:
        await child.stop()
