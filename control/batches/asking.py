"""Requests one line of a batch over HTTP, once, and returns its result."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

import aiohttp
import msgspec

from contracts.dated_request_id import mint
from contracts.errors import InvalidKey
from control.batches.claims import Result
from control.batches.line import BatchOutput, Line
from gateway.metering.journal.records import LINE_CLOSED, Closed

NO_ROOM = frozenset({408, 429, 503})
"""Statuses after which the line is requested again, as long as its batch runs."""
FAILED = frozenset({500, 502, 504})
"""Statuses after which the line is requested again, a few times: the line may be the cause."""
LONGEST_RETRY_AFTER_S = 60.0
LINE_TIMEOUT_S = 3_600.0
ID_PREFIX = "batch_req_"
_CLOSED = msgspec.json.Decoder(Closed)


class _Refused(msgspec.Struct, frozen=True):
    code: str | None
    message: str


class _Refusal(msgspec.Struct, frozen=True):
    error: _Refused


_REFUSAL = msgspec.json.Decoder(_Refusal)


class NoAnswer(Exception):
    """The gateway could not be reached, or broke off."""


class NoRoom(Exception):
    """The line was refused for now. retry_after_s: 0: the gateway named none."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__()
        self.retry_after_s = retry_after_s


class Failed(Exception):
    """The line failed. result: to be stored unless the line is requested again."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


class TokenRefused(Exception):
    """The gateway does not know the token's key: it was rotated meanwhile, or the worker has another pepper. A revoked
    key's lines are refused as lines."""


async def ask(session: aiohttp.ClientSession, url: str, token: str, number: int, line: Line) -> Result:
    """The line's result. Raises NoAnswer, NoRoom, Failed and TokenRefused."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    try:
        async with session.post(url + line.url, data=bytes(line.body), headers=headers) as response:
            body = await response.read()
            answer = msgspec.json.decode(body)
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from None
    status = response.status
    if status in NO_ROOM and response.headers.get("x-should-retry") != "false":
        raise NoRoom(_retry_after_s(response.headers.get("retry-after", "")))
    if status == 401 and (refused := _refused(body)).code == InvalidKey.code:
        raise TokenRefused(refused.message)
    request_id = response.headers.get("x-request-id", "")
    content = output(line.custom_id, {"status_code": status, "request_id": request_id, "body": answer}, None)
    result = Result(number, status == 200, content, _closed(response) if status == 200 else None)
    if status in FAILED:
        raise Failed(result)
    return result


def _refused(body: bytes) -> _Refused:
    try:
        return _REFUSAL.decode(body).error
    except msgspec.ValidationError:
        raise NoAnswer("status 401 is not the gateway's: another server answers on its URL") from None


def output(custom_id: str, response: dict[str, Any] | None, error: dict[str, str] | None) -> bytes:
    """A line of the output or error file."""
    return msgspec.json.encode(BatchOutput(ID_PREFIX + mint().removeprefix("req_"), custom_id, response, error))


def _closed(response: aiohttp.ClientResponse) -> Closed:
    try:
        return _CLOSED.decode(b64decode(response.headers.get(LINE_CLOSED.decode(), ""), validate=True))
    except (binascii.Error, msgspec.DecodeError) as error:
        raise NoAnswer(f"the response to a batch's line reports no usage: {error}") from None


def _retry_after_s(text: str) -> float:
    return min(float(text), LONGEST_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 0.0
