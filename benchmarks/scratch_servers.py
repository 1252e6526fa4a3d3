"""A PostgreSQL with the schema and a Valkey of their own, for one benchmark run."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from infra.local.child import Child
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.postgres import Postgres, create_database
from infra.local.valkey import Valkey
from migrations.run import upgrade


@contextlib.asynccontextmanager
async def scratch_servers() -> AsyncIterator[tuple[str, str]]:
    """URLs of both. PostgreSQL does not wait for the disk."""
    folder = DataFolder(Path(tempfile.mkdtemp(prefix="slip-")))
    folder.prepare()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder.path, ignore_errors=True)
        postgres = Postgres(folder, LocalConfig(), durable=False)
        postgres.prepare()
        for spec, log in ((postgres.spec(), "postgres"), (Valkey(folder).spec(), "valkey")):
            child = Child(spec, folder.log(log))
            child.start()
            stack.push_async_callback(child.stop)
            await child.ready()
        await create_database(folder.postgres_socket, "bench")
        url = f"postgresql://slipstream@/bench?host={folder.postgres_socket}"
        upgrade(url)
        yield url, f"unix://{folder.valkey_socket}"
