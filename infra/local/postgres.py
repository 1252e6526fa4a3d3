"""The embedded PostgreSQL: one cluster in the data folder, one socket in a private folder, nothing on the network.

Started by root, it drops to an ordinary account. That account may lack access to the folders above ours, so it inherits
open descriptors of the data and socket folders, named through /proc/self/fd: no parent folder's mode is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from contracts.errors import ConfigError
from infra.local.account import Account, account_for_postgres
from infra.local.binaries import postgres_binaries
from infra.local.child import ChildSpec
from infra.local.config import LocalConfig
from infra.local.folders import APPLICATION_ROLE, DataFolder
from infra.local.leftovers import clear_postgres
from infra.local.private import claim_folder, folder_error, free_space
from infra.local.spawn import Launch

NAME = "postgres"
NICE = 3
"""Gateways can preempt a long report, and key lookups can preempt engines (`local.engine_nice`)."""
MAJOR = "18"
ENSURE_ROLE = f"""
do $$ begin create role {APPLICATION_ROLE} login; exception when duplicate_object then null; end $$
"""
LOG_STAMP = re.compile(r"^\d{4}-\d\d-\d\d [\d:.]+ \w+ \[\d+\] ")
# PostgreSQL reads these variables; with other values, it would listen where the probe does not connect.
ENVIRONMENT = {"LC_ALL": "C", "PGPORT": "5432", "PGOPTIONS": "", "PGDATA": ""}


class Postgres:
    """Makes the cluster if it does not exist, and describes the child that serves it."""

    def __init__(self, data: DataFolder, config: LocalConfig, *, durable: bool = True) -> None:
        """durable=False is for tests: a crash of the machine may lose the cluster, a crash of a process does not."""
        self._data = data
        self._durable = durable
        self._account = account_for_postgres(config.postgres_account, data.postgres)
        self._binaries = postgres_binaries(self._account)
        self._descriptors: tuple[int, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether the cluster does not exist yet; `prepare` then makes it."""
        return not (self._data.postgres / "PG_VERSION").exists()

    def prepare(self) -> bool:
        """Make folders and cluster; return True if the cluster is new. Blocks for up to a few seconds.

        Raises ConfigError if another major version made the cluster, or if it cannot be made.
        """
        owner = None if self._account is None else (self._account.uid, self._account.gid)
        claim_folder(self._data.postgres_socket, owner=owner)
        version = self._data.postgres / "PG_VERSION"
        if version.exists():
            found = version.read_text().strip()
            if found != MAJOR:
                raise ConfigError(
                    f"{self._data.postgres}: made by PostgreSQL {found}, this is {MAJOR}; dump it with the old "
                    "release and load it into a new data folder"
                )
            claim_folder(self._data.postgres, owner=owner)
            return False
        if self._data.postgres.exists() and any(self._data.postgres.iterdir()):
            raise ConfigError(f"{self._data.postgres}: is not empty and not a PostgreSQL cluster; move it away")
        self._initialise(owner)
        return True

    def spec(self) -> ChildSpec:
        """The specification of the child. Call `prepare` first."""
        data, sockets = str(self._data.postgres), str(self._data.postgres_socket)
        if self._account is not None:
            self._descriptors = tuple(os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (data, sockets))
            data, sockets = (_by_descriptor(number) for number in self._descriptors)
        durable = "on" if self._durable else "off"
        settings = {
            "listen_addresses": "",
            "port": "5432",
            "unix_socket_directories": sockets,
            "unix_socket_permissions": "0700",
            "max_connections": "100" if self._durable else "300",  # a cluster that is not durable serves many tests
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",
            # Commits survive a crash of the machine. (Without these settings, they still survive killed processes.)
            "fsync": durable,
            "full_page_writes": durable,
            "synchronous_commit": durable,
            "log_checkpoints": "off",
        }
        argv = [str(self._binaries / "postgres"), "-D", data]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        return ChildSpec(
            name=NAME,
            launch=Launch(
                argv=tuple(argv),
                environment=ENVIRONMENT,
                account=self._account,
                nice=NICE,
                # SIGQUIT is PostgreSQL's immediate shutdown. SIGKILL would leave backends without a postmaster.
                death_signal=signal.SIGQUIT,
                descriptors=self._descriptors,
                folder="/",  # its account may lack access to our working directory
            ),
            url=self._data.database_url,
            probe=self._probe,
            before_start=self._recover,
            stop_signal=signal.SIGINT,
        )

    def close(self) -> None:
        """Close the descriptors that `spec` opened. Call it after the child has stopped."""
        for number in self._descriptors:
            os.close(number)
        self._descriptors = ()

    async def _recover(self) -> None:
        await clear_postgres(self._data.postgres, self._data.postgres_socket)

    async def _probe(self) -> bool:
        """Whether the server answers. Creates our database and the application's role if they are missing."""
        try:
            async with _administrator(self._data.postgres_socket) as connection:
                if not await connection.fetchval("select 1 from pg_database where datname = 'slipstream'"):
                    await connection.execute("create database slipstream")
                await connection.execute(ENSURE_ROLE)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        return True

    def _initialise(self, owner: tuple[int, int] | None) -> None:
        """Run initdb in a temporary folder and rename that: a half-made cluster never passes for a complete one."""
        for abandoned in self._data.path.glob("postgres.new-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        unfinished = claim_folder(Path(tempfile.mkdtemp(prefix="postgres.new-", dir=self._data.path)), owner=owner)
        descriptor = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY)
        try:
            target = str(unfinished) if self._account is None else _by_descriptor(descriptor)
            command = [str(self._binaries / "initdb"), "-D", target, "--username=slipstream", "--auth=trust"]
            command += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
            command += [] if self._durable else ["--no-sync"]
            result = _run(command, self._account, descriptor)
        finally:
            os.close(descriptor)
        if result.returncode != 0:
            raise ConfigError(
                f"{self._data.postgres}: the database could not be made ({free_space(unfinished)} free); "
                f"initdb said: {_told(result.stderr)}"
            )
        try:
            if self._data.postgres.exists():
                self._data.postgres.rmdir()
            unfinished.rename(self._data.postgres)
        except OSError as error:
            raise folder_error(self._data.postgres, error) from None


async def create_database(sockets: Path, name: str) -> None:
    """Make a database on the server whose socket is in this folder. Raises asyncpg's errors."""
    async with _administrator(sockets) as connection:
        await connection.execute(f"create database {name}")


@asynccontextmanager
async def _administrator(sockets: Path) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection as the cluster's owner. It needs no password: only the owner may enter the socket's folder."""
    connection = await asyncpg.connect(
        host=str(sockets), port=5432, user="slipstream", database="postgres", timeout=5.0, command_timeout=60.0
    )
    try:
        yield connection
    finally:
        connection.terminate()  # close() would wait for a server that may have stopped


def _run(command: list[str], account: Account | None, descriptor: int) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env={**os.environ, **ENVIRONMENT},
            cwd="/",
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            **({} if account is None else account.dropping()),
        )
    except OSError as error:
        identity, remedy = "", "install Slipstream again"
        if account is not None:
            identity = f" as the account {account.name!r}"
            remedy = "let it enter the folders above (chmod o+x), start Slipstream as an ordinary user"
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{command[0]}: cannot be started{identity}: {reason}; {remedy}, or set local.database_url to use a "
            "PostgreSQL that runs elsewhere"
        ) from None


def _told(stderr: str) -> str:
    """The errors of initdb and its server in one line, without timestamps and without initdb's last lines, in which it
    always reports what it removes."""
    lines = [LOG_STAMP.sub("", line).strip(" .") for line in stderr.splitlines() if "initdb: removing" not in line]
    return "; ".join(line for line in lines if line) or "nothing"


def _by_descriptor(number: int) -> str:
    """A path that reaches an inherited descriptor without walking the folders above it."""
    return f"/proc/self/fd/{number}" if sys.platform == "linux" else f"/dev/fd/{number}"
