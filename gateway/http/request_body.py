"""Reads a request's body, bounded in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from contracts.errors import BodyTooLarge, InvalidJson, RequestTimeout

STRANGERS_BYTES = 4_096
STRANGERS_TIMEOUT_S = 5.0
"""Limits of a body whose sender has no valid key or session yet, as at the sign-in page."""

Receive = Callable[[], Awaitable[Any]]
"""ASGI's `receive`."""


async def whole_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    max_bytes: int,
    check: Callable[[bytes], None],
    pause: Callable[[int], Awaitable[None]] | None = None,
) -> bytes:
    """Read the request's body. check: called with each chunk as it arrives; may refuse it. pause: awaited between two
    chunks, with the size so far. Raises BodyTooLarge, and InvalidJson, which is not logged as an internal error, if the
    client leaves before the end."""
    length = headers.get(b"content-length", b"")
    size = int(length) if length.isdigit() else 0
    body = bytearray()
    more = size <= max_bytes
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidJson("The request ended before its body was complete.")
        body += message["body"]
        size = len(body)
        if size <= max_bytes:
            check(message["body"])
        more = message["more_body"] and size <= max_bytes
        if more and pause is not None:
            await pause(size)
    if size > max_bytes:
        raise BodyTooLarge(f"The request body is larger than {max_bytes} bytes.")
    return bytes(body)


async def strangers_body(headers: Mapping[bytes, bytes], receive: Receive, check: Callable[[bytes], None]) -> bytes:
    """Read the body of a request without a valid key. Raises the errors of `whole_body`, and RequestTimeout."""
    try:
        async with asyncio.timeout(STRANGERS_TIMEOUT_S):
            return await whole_body(headers, receive, STRANGERS_BYTES, check)
    except TimeoutError:
        raise RequestTimeout(
            f"The request's body took longer than {STRANGERS_TIMEOUT_S:g} s to arrive, the limit for requests without "
            "a key. Send it at once."
        ) from None
