"""A PostgreSQL that holds the filled deployment, kept for later runs if wanted, and a gateway and a router on it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from benchmarks.scratch_servers import running
from infra.local.child import ChildSpec
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.postgres import Postgres, create_database
from infra.local.valkey import Valkey
from migrations.run import upgrade
from tests.control.api.lone_gateway import LoneGateway, lone_gateway
from tests.deployment import ROOT, free_port, plain_environment

DATABASE = "bench"
PEPPER = b"b" * 64
SHARED_BUFFERS = "2GB"
"""PostgreSQL's documentation recommends a quarter of the memory; this is a quarter of 8 GB."""


@contextlib.asynccontextmanager
async def servers(kept: Path | None) -> AsyncIterator[tuple[str, str]]:
    """URLs of PostgreSQL, migrated to this version's tables, and Valkey. kept: its folder; None for a temporary one."""
    folder = DataFolder(kept or Path(tempfile.mkdtemp(prefix="slip-")))
    folder.prepare()
    postgres = Postgres(folder, LocalConfig(), durable=False)
    is_new = postgres.prepare()
    async with contextlib.AsyncExitStack() as stack:
        if kept is None:
            stack.callback(shutil.rmtree, folder.path, ignore_errors=True)
        stack.callback(postgres.close)
        await stack.enter_async_context(running(_with_memory(postgres.spec()), folder.log("postgres")))
        if is_new:
            await create_database(folder.postgres_socket, DATABASE)
        await stack.enter_async_context(running(Valkey(folder).spec(), folder.log("valkey")))
        url = f"postgresql://slipstream@/{DATABASE}?host={folder.postgres_socket}"
        await asyncio.to_thread(upgrade, url)
        yield url, f"unix://{folder.valkey_socket}"


def _with_memory(spec: ChildSpec) -> ChildSpec:
    """Options for a database of ten million rows; `up` on a laptop gives 32 MB. The last of several counts."""
    argv = (*spec.launch.argv, "-c", f"shared_buffers={SHARED_BUFFERS}")
    return msgspec.structs.replace(spec, launch=msgspec.structs.replace(spec.launch, argv=argv))


async def filled(url: str) -> bool:
    """Whether an earlier run has filled it."""
    connection = await asyncpg.connect(url)
    try:
        return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM gateway.usage_verifications)"))
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def gateway_and_router(database_url: str, valkey_url: str) -> AsyncIterator[LoneGateway]:
    """Both as processes; the pages of the fleet query the router."""
    port, control_port = free_port(), free_port()
    settings: dict[str, Any] = {
        "SLIPSTREAM_GATEWAY__ROUTER__ADDRESS": f"127.0.0.1:{port}",
        "SLIPSTREAM_ROUTER__PORT": str(port),
        "SLIPSTREAM_ROUTER__CONTROL_PORT": str(control_port),
    }
    async with lone_gateway(database_url, valkey_url, pepper=PEPPER, **settings) as gateway:
        environment = {**plain_environment(), **settings}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "slipstream", "router", "--data", str(gateway.data), cwd=ROOT, env=environment
        )
        try:
            yield gateway
        finally:
            process.terminate()
            await process.wait()
