"""Runs the prefill engine's part of an attempt on a pair, in parallel with the decode engine. Its response is read to
its end, but not forwarded."""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from contracts.errors import SlipstreamError
from contracts.generation import Bootstrap
from contracts.lease import Engine
from engines.drivers.base import Driver
from engines.http.engine_connections import Opening
from gateway.serving.engine_refusal import refusal

ROOM_BITS = 63
"""Bits of a room's number, which engines store in a signed 64-bit integer."""


def bootstrap(prefill: Engine) -> Bootstrap:
    """The address at which the pair meets, with a random room."""
    return Bootstrap(urlsplit(prefill.url).hostname or "", prefill.bootstrap_port, secrets.randbits(ROOM_BITS))


class PrefillRequest:
    """Context that sends the request. Its failure ends the block with the error until `answered` is called: the decode
    engine then has the prompt's KV cache. The end of the block closes the connection, which stops the engine."""

    def __init__(self, opening: Opening, driver: Driver, timeout_s: float) -> None:
        """timeout_s: the limit for the response's head."""
        self._opening = opening
        self._driver = driver
        self._timeout_s = timeout_s
        self._answered = False
        self._guard = asyncio.timeout(None)
        self._task: asyncio.Task[None] | None = None
        self.error: SlipstreamError | None = None
        """The failure before the decode engine began to respond."""

    def answered(self) -> None:
        """Record that the decode engine has begun to respond."""
        self._answered = True

    async def __aenter__(self) -> Self:
        await self._guard.__aenter__()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        try:
            await asyncio.wait({self._task})
        finally:
            self._opening.close()
            try:
                await self._guard.__aexit__(kind, error, trace)
            except TimeoutError:
                assert self.error is not None
                raise self.error from None
        if self.error is not None and isinstance(error, SlipstreamError):
            raise self.error from None

    async def _read(self) -> None:
        try:
            stream = await self._opening.response(self._timeout_s)
            if stream.status != 200:
                raise await refusal(self._driver, stream)
            while await stream.read():
                pass
        except SlipstreamError as error:
            if not self._answered:
                self.error = error
                self._guard.reschedule(asyncio.get_running_loop().time())
