"""Sends one request for a key to a gateway, and distinguishes an answer from a temporary refusal."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import aiohttp
import msgspec

from contracts.errors import InvalidKey
from gateway.metering.journal.records import LINE_CLOSED, Closed

NO_ROOM = frozenset({408, 429, 503})
"""Statuses after which the request is retried until its time ends."""
FAILED = frozenset({500, 502, 504})
"""Statuses after which the request is retried a few times: the request may be the cause."""
MAX_TRIES = 5
"""Limit of tries that fail through the platform's fault. The last failure is the result."""
LOST = (
    f"The request failed {MAX_TRIES} times because its gateway, worker or engine stopped. Send it again; if it fails "
    "again, change the request."
)
LONGEST_RETRY_AFTER_S = 60.0
TIMEOUT_S = 3_600.0
TOKEN_REFUSED = (
    "%s: %s refuses the worker's token for %s (%s); retrying. The key was rotated, the two have different peppers (the "
    "file `pepper` of the data folder), or their clocks differ"
)
"""Log line for TokenRefused, with the kind of work, the gateway's URL, the work's id, the gateway's message."""
_CLOSED = msgspec.json.Decoder(Closed)


class ErrorBody(msgspec.Struct, frozen=True):
    """The error of a refusal."""

    code: str | None
    message: str
    param: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    error: ErrorBody


_REFUSAL = msgspec.json.Decoder(_Refusal)


class Answer(msgspec.Struct, frozen=True):
    """A gateway's answer. body: JSON. closed: the record of the run; None if it was refused or failed."""

    status: int
    request_id: str
    body: bytes
    closed: Closed | None


class GatewayUnreachable(Exception):
    """The gateway could not be reached, or another server answered."""


class NoAnswer(GatewayUnreachable):
    """The gateway broke off or took too long after it had the request, which may be the cause."""


class StreamEnd(NamedTuple):
    """The end of a streamed answer. status: as without streaming. record: the run's record, in base64."""

    status: int
    body: bytes
    record: bytes


class RetryLater(Exception):
    """The request was refused temporarily. retry_after_s: 0 if the gateway named none."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__()
        self.retry_after_s = retry_after_s


class TokenRefused(Exception):
    """The gateway does not know the token's key: the key was rotated, or the worker has another pepper. With a revoked
    key, the gateway's refusal is the answer."""


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    token: str,
    body: bytes,
    headers: Mapping[str, str] = MappingProxyType({}),
    read_stream: Callable[[aiohttp.StreamReader], Awaitable[StreamEnd]] | None = None,
) -> Answer:
    """Send this POST. read_stream: reads a successful answer that is streamed.

    Raises GatewayUnreachable, NoAnswer, RetryLater and TokenRefused.
    """
    headers = {**headers, "authorization": f"Bearer {token}", "content-type": "application/json"}
    try:
        async with session.post(url, data=body, headers=headers) as response:
            status, record = response.status, response.headers.get(LINE_CLOSED.decode(), "").encode()
            if read_stream is not None and status == 200:
                status, answer, record = await read_stream(response.content)
            else:
                answer = await response.read()
            msgspec.json.decode(answer, type=msgspec.Raw)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, msgspec.DecodeError) as error:
        raise GatewayUnreachable(f"{type(error).__name__}: {error}") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from None
    if status in NO_ROOM and response.headers.get("x-should-retry") != "false":
        raise RetryLater(_retry_after_s(response.headers.get("retry-after", "")))
    if status == 401 and (refused := refusal(answer)).code == InvalidKey.code:
        raise TokenRefused(refused.message)
    request_id = response.headers.get("x-request-id", "")
    return Answer(status, request_id, answer, _closed(record) if status == 200 else None)


def refusal(body: bytes) -> ErrorBody:
    """The error in the body of a refusal. Raises GatewayUnreachable if another server sent it."""
    try:
        return _REFUSAL.decode(body).error
    except msgspec.ValidationError:
        raise GatewayUnreachable("the refusal is not the gateway's: another server answers on its URL") from None


def _closed(record: bytes) -> Closed:
    try:
        return _CLOSED.decode(b64decode(record, validate=True))
    except (binascii.Error, msgspec.DecodeError) as error:
        raise GatewayUnreachable(f"the response to the worker's request reports no usage: {error}") from None


def _retry_after_s(text: str) -> float:
    return min(float(text), LONGEST_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 0.0
