"""Decodes an engine's error response."""

from __future__ import annotations

from contracts.errors import Overloaded, SlipstreamError
from engines.drivers.base import Driver
from engines.http.engine_stream import EngineStream

MAX_ERROR_BYTES = 65_536


async def refusal(driver: Driver, stream: EngineStream) -> SlipstreamError:
    """The error of an engine's response, with the retry delay that a full engine may have sent."""
    error = driver.error(stream.status, await _rest_of(stream))
    if isinstance(error, Overloaded) and stream.retry_after_s is not None:
        error.retry_after_s = stream.retry_after_s
    return error


async def _rest_of(stream: EngineStream) -> bytes:
    """Read an error's body, until its end or until it has `MAX_ERROR_BYTES`."""
    body = b""
    while len(body) < MAX_ERROR_BYTES and (data := await stream.read()):
        body += data
    return body
