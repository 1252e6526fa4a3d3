"""One gateway's streams of changed topics, and the watcher that checks the topics for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

import asyncpg

from contracts.background_task import BackgroundTask
from contracts.errors import RateLimited, SlipstreamError
from control.api.events.config import EventsConfig
from control.api.events.look import Look
from control.api.events.standing import standing_of, standings
from control.api.events.topics import Topic
from control.api.principal import Principal

ResultT = TypeVar("ResultT")
OF_OPERATORS = 0.1
"""Share of all streams that is reserved for operators."""
logger = logging.getLogger(__name__)


class Connected(Protocol):
    """Runs work on a database connection: `AdminApi.connected`."""

    def __call__(
        self, what: str, work: Callable[[asyncpg.Connection[Any]], Awaitable[ResultT]]
    ) -> Awaitable[ResultT]: ...


class Stream:
    """One open stream."""

    def __init__(self, principal: Principal, topics: frozenset[Topic]) -> None:
        self.principal = principal
        self.topics = topics
        self.ended = False
        self.looked = asyncio.Event()
        """Set when the starting point is known. Every later change is sent."""
        self._pending: set[Topic] = set()
        self._notified = asyncio.Event()

    def tell(self, topics: set[Topic]) -> None:
        """Notify the client of these topics."""
        self._pending |= topics
        if topics:
            self._notified.set()

    def end(self) -> None:
        """End the stream."""
        self.ended = True
        self._notified.set()
        self.looked.set()

    async def news(self, timeout_s: float) -> list[Topic]:
        """Wait for changes since the last call, and return them. Return none after `timeout_s` or at the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._notified.wait()
        self._notified.clear()
        pending, self._pending = self._pending, set()
        return [] if self.ended else sorted(pending)


class EventStreams:
    """The streams of one gateway. connected: see `AdminApi`. idle_s: unused time after which a console session ends.
    replicas: returns every engine, as the router last reported."""

    def __init__(
        self, config: EventsConfig, connected: Connected, idle_s: float, replicas: Callable[[], object]
    ) -> None:
        self.config = config
        self._connected = connected
        self._idle = timedelta(seconds=idle_s)
        self._replicas = replicas
        self._streams: list[Stream] = []
        self._secret = secrets.token_bytes(16)
        self._number = 0
        """Number of the newest change."""
        self._newest: dict[tuple[Topic, UUID | None], int] = {}
        """Number of the newest change, by topic and organization; None as organization means any of them."""
        self._since = 0
        """The gateway did not check before this number: any topic may have changed."""
        self._task = BackgroundTask("events", self._watch)

    def last_id(self, stream: Stream) -> str:
        """The id of the newest change for this stream; each change has another id. It does not reveal how many changes
        other organizations have had."""
        owner = None if stream.principal.operator else stream.principal.organization_id
        number = max(self._newest.get((topic, owner), self._since) for topic in stream.topics)
        return hashlib.blake2b(number.to_bytes(8, "big"), key=self._secret, digest_size=12).hexdigest()

    async def stop(self) -> None:
        """End all streams."""
        for stream in self._streams:
            stream.end()
        await self._task.stop()

    @contextlib.contextmanager
    def open(self, principal: Principal, topics: frozenset[Topic]) -> Iterator[Stream]:
        """Open a stream for the block. Raises RateLimited if the principal, its organization or this gateway has
        reached its limit."""
        config = self.config
        own = sum(each.principal.id == principal.id for each in self._streams)
        if own >= config.max_streams_per_principal:
            raise RateLimited(
                f"You have {own} event streams open at this gateway, which is the limit; close one, or "
                "poll every few seconds.",
                retry_after_s=60,
            )
        of_organization = sum(each.principal.organization_id == principal.organization_id for each in self._streams)
        if not principal.operator and of_organization >= config.max_streams_per_organization:
            raise RateLimited(
                f"Your organization has {of_organization} event streams open at this gateway, which is the "
                "limit; poll every few seconds.",
                retry_after_s=60,
            )
        limit = config.max_streams if principal.operator else config.max_streams * (1 - OF_OPERATORS)
        if len(self._streams) >= limit:
            raise RateLimited(
                "This gateway has reached its limit of open event streams; poll every few seconds.",
                retry_after_s=60,
            )
        stream = Stream(principal, topics)
        self._streams.append(stream)
        self._task.start()
        try:
            yield stream
        finally:
            self._streams.remove(stream)

    async def _watch(self) -> None:
        look, clock = Look(self._replicas), asyncio.get_running_loop().time
        confirmed_s = clock()
        self._number = self._since = self._number + 1
        self._newest.clear()
        while self._streams:
            try:
                if clock() - confirmed_s >= self.config.beat_s - self.config.look_every_s:
                    await self._confirm()
                    confirmed_s = clock()
                await self._look(look)
            except SlipstreamError as error:
                logger.warning("event streams end: %s", error.message)
                for stream in self._streams:  # their current access is unknown
                    stream.end()
            await asyncio.sleep(self.config.look_every_s)

    async def _look(self, look: Look) -> None:
        listening = list(self._streams)
        wanted = frozenset(topic for stream in listening for topic in stream.topics)

        async def ask(connection: asyncpg.Connection[Any]) -> Any:
            return await look.news(connection, wanted)

        found = await self._connected("events", ask)
        if found:
            self._number += 1
            for each in found:
                self._newest[each.topic, each.organization_id] = self._newest[each.topic, None] = self._number
        for stream in listening:
            if stream.looked.is_set():
                stream.tell({each.topic for each in found if each.is_for(stream.principal, stream.topics)})
            stream.looked.set()

    async def _confirm(self) -> None:
        streams = list(self._streams)

        async def ask(connection: asyncpg.Connection[Any]) -> Any:
            return await standings(connection, [each.principal for each in streams], self._idle)

        valid = await self._connected("events", ask)
        for stream in streams:
            if standing_of(stream.principal) not in valid:
                stream.end()
