"""Sends the known stream, event by event, like completions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from contracts.errors import Draining, RequestTimeout
from contracts.stream_audit import DONE, EVENT_BYTES, AuditEvent, Opening
from gateway.http.response import ResponseWriter
from gateway.stream_audit.asked import Asked

GRACE_S = 5.0
"""Extra time for a stream whose client reads slowly."""
LOOK_S = 1.0
"""Interval at which a long silence checks whether this instance is draining."""
FINISH = f"data: {DONE}\n\n".encode()
_encode = msgspec.json.Encoder().encode


async def send(asked: Asked, response: ResponseWriter, opening: Opening, draining: Callable[[], bool]) -> None:
    """Send all events; FINISH ends the stream. Raises RequestTimeout if the client does not read, and Draining."""
    try:
        async with asyncio.timeout(asked.duration_s + GRACE_S):
            for number in range(asked.events):
                if number:
                    await _silence(asked.interval_ms / 1e3, draining)
                await response.drained()
                response.events(framed(number, opening if number == 0 else None))
    except TimeoutError:
        raise RequestTimeout(f"The stream was not read within {asked.duration_s + GRACE_S:g} s.") from None


def framed(number: int, opening: Opening | None) -> bytes:
    """An event that is sent now."""
    event = AuditEvent(number, time.monotonic_ns() // 1_000, opening)
    if opening is None:
        event.padding = " " * (EVENT_BYTES - len(_encode(event)) - len(',"padding":""'))
    return b"data: %b\n\n" % _encode(event)


async def _silence(seconds: float, draining: Callable[[], bool]) -> None:
    """Wait from the previous event, not from the stream's beginning, so that a late event delays the later ones."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if draining():
            raise Draining
        await asyncio.sleep(min(left_s, LOOK_S))
