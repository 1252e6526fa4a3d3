"""Receives PostgreSQL's NOTIFY on its own connection, and proves continuously that the channel works.

Silence on a notification channel looks the same whether nothing happened or the connection is dead. So a round trip is
made on the same connection every `heartbeat_s`: notifications and the reply travel in one ordered stream, hence when
the reply arrives, everything announced before it has been delivered. `proven_at_s` is the time at which the last such
round trip *began*. A caller may rely on silence only for as long after it as it can afford to be wrong.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import asyncpg

from contracts.background_task import BackgroundTask
from contracts.backoff import Backoff
from storage.engine import FAILURES, checked, connect, redacted

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

_log = logging.getLogger(__name__)


class NotificationListener:
    """Keeps one listening connection alive until stopped.

    channels: the callback for payloads, by channel. on_joined: called each time listening begins, before any payload.
    Earlier notifications may have been missed, so discard or reload what depends on them. All calls come from the event
    loop and must not block. Raises ConfigError for a URL that names no PostgreSQL database.
    """

    def __init__(
        self,
        url: str,
        channels: Mapping[str, Callable[[str], None]],
        *,
        on_joined: Callable[[], None],
        heartbeat_s: float,
        heartbeat_timeout_s: float,
        name: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = checked(url)
        self._channels = channels
        self._on_joined = on_joined
        self._heartbeat_s = heartbeat_s
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._name = name
        self._monotonic = monotonic
        self._task = BackgroundTask(f"{name}-listener", self._run)
        self._first_attempt_over = asyncio.Event()
        self.proven_at_s = float("-inf")
        """Monotonic time; minus infinity before the first proof."""

    async def start(self) -> None:
        """Begin, and return when the first attempt has succeeded or failed. Never raises for a lost database."""
        self._task.start()
        await self._first_attempt_over.wait()

    async def stop(self) -> None:
        """Stop listening and close the connection. Idempotent."""
        await self._task.stop()
        self.proven_at_s = float("-inf")

    async def _run(self) -> None:
        try:
            await self._listen_again_and_again()
        finally:
            self._first_attempt_over.set()  # start() must not wait, whatever ended this

    async def _listen_again_and_again(self) -> None:
        backoff, logged = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), ""
        while True:
            proven_before_s, problem = self.proven_at_s, ""
            try:
                await self._listen()
            except FAILURES as error:
                problem = repr(error)
            self._first_attempt_over.set()
            if self.proven_at_s > proven_before_s:
                backoff.reset()
                logged = ""
            if problem != logged:  # one line for each problem
                url = redacted(self._url)
                _log.warning("%s: the database at %s cannot be reached, trying again: %s", self._name, url, problem)
            logged = problem
            await asyncio.sleep(backoff.next_s())

    async def _listen(self) -> None:
        """Connect and listen until the connection fails; always raises."""
        connection = await connect(self._url, timeout_s=self._heartbeat_timeout_s, name=self._name)
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        try:
            began_s = self._monotonic()
            async with asyncio.timeout(self._heartbeat_timeout_s):
                for channel, callback in self._channels.items():
                    await connection.add_listener(channel, _payload_only(callback))
            self._on_joined()
            self.proven_at_s = began_s
            self._first_attempt_over.set()
            while not await self._closed_within_heartbeat(closed):
                began_s = self._monotonic()
                async with asyncio.timeout(self._heartbeat_timeout_s):
                    await connection.execute("SELECT 1")
                self.proven_at_s = began_s
            raise ConnectionError("the server closed the connection")
        finally:
            # Not close(), which waits for a server that may be the cause of the failure.
            connection.terminate()

    async def _closed_within_heartbeat(self, closed: asyncio.Event) -> bool:
        try:
            async with asyncio.timeout(self._heartbeat_s):  # not wait_for, which may lose a cancellation
                await closed.wait()
        except TimeoutError:
            return False
        return True


def _payload_only(callback: Callable[[str], None]) -> Callable[[asyncpg.Connection[Any], int, str, str], None]:
    return lambda _connection, _pid, _channel, payload: callback(payload)
