"""The desired state as this gateway knows it: rows in PostgreSQL, one per version; the highest version counts.

It follows the table by notifications, and by polling in case one is lost. While the database is unavailable, the last
known state stays in force: an outage of the database does not change the fleet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from contracts.background_task import BackgroundTask
from contracts.desired_state import DesiredState, Pool
from contracts.errors import ConfigError, in_words
from gateway.desired import document
from gateway.desired.config import DesiredConfig
from storage.channels import DESIRED_CHANNEL
from storage.engine import COMMAND_TIMEOUT_S, FAILURES, MAY_PASS, REFUSALS, borrow, close, lazy_pool, redacted
from storage.notification_listener import NotificationListener

NEWEST = "SELECT version, document FROM gateway.desired_states WHERE version > $1 ORDER BY version DESC LIMIT 1"
BEFORE = "SELECT version, document FROM gateway.desired_states WHERE version < $1 ORDER BY version DESC LIMIT 1"

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class DatabaseAway(ConfigError):
    """The database cannot be reached now; a retry may succeed."""


async def last_pools(pool: asyncpg.Pool[Any], url: str, timeout_s: float) -> tuple[Pool, ...]:
    """The pools of the newest row; empty if there is none or the database is unavailable. url: of the pool's database.

    Raises ConfigError if the database was never migrated or refuses the URL.
    """
    try:
        async with asyncio.timeout(timeout_s), borrow(pool) as connection:
            row = await connection.fetchrow(NEWEST, 0, timeout=timeout_s)
    except asyncpg.UndefinedTableError:
        raise ConfigError(
            "the database has no tables yet; run `slipstream config migrate up`", param="database"
        ) from None
    except REFUSALS as error:
        raise ConfigError(
            f"database {redacted(url)}: {error}; correct the URL, or create the role or database", param="database"
        ) from None
    except FAILURES:
        return ()
    with contextlib.suppress(ConfigError):
        return document.decode(*row).pools if row is not None else ()
    return ()


class DesiredStateStore:
    """Reads and follows the desired state. One per gateway process.

    on_change: called on the event loop with each newer state, also the first, in ascending versions; must not block.
    """

    def __init__(
        self,
        url: str,
        config: DesiredConfig | None = None,
        *,
        on_change: Callable[[DesiredState], None] = lambda _state: None,
    ) -> None:
        self._url = url
        self._config = config or DesiredConfig()
        self._on_change = on_change
        self._pool: asyncpg.Pool[Any] | None = None
        self._follower = BackgroundTask("desired-state", self._follow)
        self._announced = asyncio.Event()
        self._problem = ""
        self.current = DesiredState(version=0)
        """The newest known state; version 0, empty, before there is one."""
        self._listener = NotificationListener(
            url,
            {DESIRED_CHANNEL: lambda _version: self._announced.set()},
            on_joined=self._announced.set,
            heartbeat_s=self._config.heartbeat_s,
            heartbeat_timeout_s=self._config.timeout_s,
            name="slipstream-desired-listen",
        )

    async def start(self) -> None:
        """Load the newest state and begin to follow. Without the database, it returns with an empty `current`."""
        self._pool = await lazy_pool(
            self._url,
            size=2,
            connect_timeout_s=self._config.timeout_s,
            command_timeout_s=max(COMMAND_TIMEOUT_S, self._config.timeout_s),
            name="slipstream-desired",
        )
        await self._listener.start()
        await self._refresh()
        self._follower.start()

    async def stop(self) -> None:
        """Stop following; `current` stays. Idempotent."""
        await self._follower.stop()
        await self._listener.stop()
        pool, self._pool = self._pool, None
        await close(pool, self._config.timeout_s)

    async def before(self, version: int) -> DesiredState | None:
        """The newest state before a version; None if there is none, or if it cannot be read."""
        if self._pool is None:
            return None
        try:
            async with asyncio.timeout(self._config.timeout_s), borrow(self._pool) as connection:
                row = await connection.fetchrow(BEFORE, version)
            return None if row is None else document.decode(*row)
        except (*FAILURES, ConfigError):
            return None

    async def in_transaction(self, work: Callable[[asyncpg.Connection[Any]], Awaitable[ResultT]]) -> ResultT:
        """Write a new version. Raises ConfigError if the database refuses it, DatabaseAway if it cannot be reached."""
        if self._pool is None:
            raise ConfigError("desired state: the store is not started")
        try:
            async with (
                asyncio.timeout(self._config.timeout_s),
                borrow(self._pool) as connection,
                connection.transaction(),
            ):
                return await work(connection)
        except FAILURES as error:
            unavailable = isinstance(error, MAY_PASS) and not isinstance(error, REFUSALS)
            raise (DatabaseAway if unavailable else ConfigError)(
                f"database {redacted(self._url)}: the desired state could not be written: "
                + in_words(error, self._config.timeout_s),
                param="database",
            ) from error

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                # not wait_for, which loses a cancellation if the event is set at that moment: stop() would wait forever
                async with asyncio.timeout(self._config.poll_s):
                    await self._announced.wait()
            await self._refresh()

    async def _refresh(self) -> None:
        """Adopt the newest row, if it can be read; if not, log the reason once while it lasts."""
        # Clear before reading: a version that is announced during the read is read again.
        self._announced.clear()
        if self._pool is None:
            return
        problem = ""
        try:
            async with asyncio.timeout(self._config.timeout_s), borrow(self._pool) as connection:
                row = await connection.fetchrow(NEWEST, self.current.version)
            if row is not None:
                self.adopt(document.decode(*row))
        except (*FAILURES, ConfigError) as error:
            problem = in_words(error, self._config.timeout_s)
        if problem and problem != self._problem:
            _log.warning(
                "desired state stays at version %d: the newest cannot be read (%s); tried again every %g s",
                self.current.version,
                problem,
                self._config.poll_s,
            )
        self._problem = problem

    def adopt(self, state: DesiredState) -> None:
        """Adopt a state that is newer than the newest known."""
        if state.version <= self.current.version:
            return
        self.current = state
        try:
            self._on_change(state)
        except Exception:
            # A defect of a subscriber must not prevent later versions from being followed.
            _log.exception("desired state version %d: the gateway could not take it up", state.version)
