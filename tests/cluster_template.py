"""A PostgreSQL cluster whose database is migrated, made once for these sources and this PostgreSQL, and copied into the
data folders of test deployments: a copy takes a tenth of what initdb and the migrations do."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.local.binaries import postgres_binaries
from infra.local.child import Child
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.postgres import Postgres
from infra.local.private import claim_folder
from migrations.run import upgrade

ROOT = Path(__file__).parents[1]
SOURCES = ("migrations/*.py", "migrations/versions/*.py", "infra/local/postgres.py")


async def copy_cluster(data: Path) -> None:
    """Put the cluster into the data folder, which has none yet."""
    # Ours alone, whoever else writes to the temporary folder: claimed, or refused.
    kept = claim_folder(Path(tempfile.gettempdir()) / f"slipstream-test-cluster-{os.geteuid()}")
    cluster = kept / _digest()
    copy = ("cp", "--archive", "--reflink=auto", str(cluster), str(DataFolder(data).postgres))
    with (kept / "lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_SH)
        while not cluster.exists():
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            if not cluster.exists():
                make = (sys.executable, "-m", "tests.cluster_template", str(kept), str(cluster))
                # a process of its own: uvloop, which benchmarks run on, starts no child under another account
                await asyncio.to_thread(subprocess.run, make, check=True, cwd=ROOT)
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_SH)
        # a run of other sources, which removes this cluster to make its own, waits for the copy
        await asyncio.to_thread(subprocess.run, copy, check=True)


async def _make(kept: Path, cluster: Path) -> None:
    """Make the cluster, instead of those of other sources. Renamed when it is whole."""
    _empty(kept)
    data = DataFolder(kept / "making")
    data.prepare()
    postgres = Postgres(data, LocalConfig(), durable=False)
    postgres.prepare()
    child = Child(postgres.spec(), data.log("postgres"))
    child.start()
    try:
        await child.ready()
        await asyncio.to_thread(upgrade, data.migration_database_url, application_url=data.database_url)
    finally:
        await child.stop()
        postgres.close()
    data.postgres.rename(cluster)
    shutil.rmtree(data.path)


def _empty(kept: Path) -> None:
    for abandoned in kept.glob("*"):
        if abandoned.is_dir():
            shutil.rmtree(abandoned, ignore_errors=True)


def _digest() -> str:
    """The digest of everything that the cluster is made of."""
    program = (postgres_binaries(None) / "postgres").stat()
    digest = hashlib.sha256(f"{program.st_size} {program.st_mtime_ns}".encode())
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    asyncio.run(_make(Path(sys.argv[1]), Path(sys.argv[2])))
