"""Works on leased rows, several at once, until each needs no more work. A subclass defines the work.

The process may be killed at any time if each step is a transaction that checks the lease, or can be repeated.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
import asyncpg

from contracts.backoff import Backoff
from control.deferred import gateway_client
from control.deferred.leases import Claim, LeaseLost, Leases, while_leased
from gateway.metering.ledger.ledger import Ledger
from storage.engine import DEFECTS, FAILURES, borrow, close, lazy_pool

KEEP_S = 2.0
"""Interval between renewals of a lease, which also notice that the work must end."""
IDLE_S = 30.0
PAUSE_S = 5.0
"""Pause after work that failed."""
CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 60.0

ResultT = TypeVar("ResultT")
_log = logging.getLogger(__name__)


class LeasedRowWorker(abc.ABC):
    """One per worker process and table.

    url: the gateway's URL. pepper: returns the deployment's pepper, from which tokens are derived; called once.
    trusted: verifies the gateway's certificate; None for the default.
    """

    name: str
    """Name in log lines and of connections."""
    leases: Leases
    at_once: int
    """Limit of the rows that a worker holds."""
    most_each: int
    """Limit of one organization's rows that all workers hold together."""
    connections: int
    """Number of database connections."""
    requests: int
    """Limit of concurrent requests to the gateway."""

    def __init__(
        self, database_url: str, url: str, pepper: Callable[[], bytes], trusted: ssl.SSLContext | None = None
    ) -> None:
        self._database_url = database_url
        self._url = url
        self._new_pepper = pepper
        self._trusted = trusted
        self._pepper: bytes
        self._pool: asyncpg.Pool[Any]
        self._ledger: Ledger
        self._session: aiohttp.ClientSession

    @abc.abstractmethod
    async def _steps(self, claim: Claim, ended: asyncio.Event) -> None:
        """Work on a row until it needs no more work or gives way. ended: shared with the renewal; a subclass defines
        what it means. Raises LeaseLost."""

    def _on_renewed(self, status: Any, ended: asyncio.Event) -> None:  # noqa: B027  not all work can end early
        """Called when the lease was renewed. status: what `Leases.renew` returned. May set `ended`."""

    @abc.abstractmethod
    async def _on_idle(self) -> None:
        """Called when no row waits, or no more can be taken. Raises asyncpg's errors."""

    async def run(self, due: asyncio.Event, stop: asyncio.Event) -> None:
        """Work whenever a row may need it, until `stop`; the held rows are then released."""
        self._pepper = self._new_pepper()
        self._pool = await lazy_pool(
            self._database_url,
            size=self.connections,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            name=f"slipstream-{self.name}",
        )
        self._ledger = Ledger(self._pool)
        connector = aiohttp.TCPConnector(limit=self.requests, ssl=self._trusted or True)
        timeout = aiohttp.ClientTimeout(total=gateway_client.TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session,
                asyncio.TaskGroup() as working,
            ):
                await self._serve(working, due, stop)
        finally:
            await close(self._pool, CONNECT_TIMEOUT_S)

    async def _serve(self, working: asyncio.TaskGroup, due: asyncio.Event, stop: asyncio.Event) -> None:
        room = asyncio.Semaphore(self.at_once)
        suspect: asyncio.Task[None] | None = None

        def over(task: asyncio.Task[None]) -> None:
            nonlocal suspect
            if task is suspect:
                suspect = None
            room.release()
            due.set()

        while not stop.is_set():
            due.clear()
            try:
                while not (stop.is_set() or room.locked()) and (
                    claim := await self._once(self.leases.claim, self.most_each, suspect is None)
                ):
                    await room.acquire()
                    task = working.create_task(self._work(claim, stop))
                    task.add_done_callback(over)
                    if claim.suspect:
                        suspect = task
                await self._on_idle()
            except FAILURES as error:
                _log.warning("%s wait for the database: %r", self.name, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(due.wait(), IDLE_S)

    async def _work(self, claim: Claim, stop: asyncio.Event) -> None:
        """Work on a row until it ends, is lost, or gives way, or the process stops."""
        ended = asyncio.Event()
        _, failure = await while_leased(self._steps(claim, ended), self._renew(claim, ended), stop)
        match failure:
            case None:
                await self._release(claim)
            case LeaseLost():
                _log.info("%s: %s was taken over by another worker, or has ended", self.name, claim.id)
            case _:
                _log.error("%s: %s failed and is retried", self.name, claim.id, exc_info=failure)
                with contextlib.suppress(TimeoutError):  # `wait_for` cancels the wait; a separate task would remain
                    await asyncio.wait_for(stop.wait(), PAUSE_S)
                await self._release(claim)

    async def _release(self, claim: Claim) -> None:
        with contextlib.suppress(*FAILURES):  # its lease ends anyway
            await self._once(self.leases.release, claim)

    async def _renew(self, claim: Claim, ended: asyncio.Event) -> None:
        """Renew the lease, forever. Raises LeaseLost."""
        while True:
            # an unreachable database does not end the work: the lease is lost only when another worker takes it
            with contextlib.suppress(*FAILURES):
                self._on_renewed(await self._once(self.leases.renew, claim), ended)
            await asyncio.sleep(KEEP_S)

    # the database

    async def _once(self, work: Callable[..., Awaitable[ResultT]], *values: Any) -> ResultT:
        """Call `work` with a connection. Raises asyncpg's errors and TimeoutError."""
        async with asyncio.timeout(STATEMENT_TIMEOUT_S), borrow(self._pool) as connection:
            return await work(connection, *values)

    async def _do(self, work: Callable[..., Awaitable[ResultT]], *values: Any) -> ResultT:
        """Call `work`, and repeat it while the database is unreachable. It must be safe to repeat."""
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                return await self._once(work, *values)
            except DEFECTS:
                raise
            except FAILURES as error:
                _log.warning("%s wait for the database: %r", self.name, error)
            await asyncio.sleep(backoff.next_s())
