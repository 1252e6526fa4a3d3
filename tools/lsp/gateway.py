"""The language server's client of the gateway: completions and events over persistent connections."""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Meta

from tools.lsp.memory import Answer

CONNECT_TIMEOUT_S = 5.0
KEPT_S = 60.0
"""How long an idle connection is kept; gateways keep theirs for 75 s by default."""
COMPLETIONS = "/v1/completions"
UNREACHABLE = "unreachable"
UNREADABLE = "unreadable"


class GatewayRefused(Exception):
    """The request failed. code: the API's, or one of those above. sentence: for the user; the API's own if it sent one.

    status: the response's; None without a response. retry_after_s: seconds to wait before a retry; None if unknown.
    """

    def __init__(
        self, code: str, sentence: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.status = status
        self.retry_after_s = retry_after_s


class _Choice(msgspec.Struct):
    text: str


class _Completion(msgspec.Struct):
    id: str
    choices: Annotated[list[_Choice], Meta(min_length=1)]


class _Complaint(msgspec.Struct):
    message: str
    code: str | None = None


class _Error(msgspec.Struct):
    error: _Complaint


class Gateway:
    """A client of one gateway. Create it inside the event loop that uses it, and `close` it."""

    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=KEPT_S),
            headers={"user-agent": "slipstream-lsp"} | ({"authorization": f"Bearer {key}"} if key else {}),
            timeout=aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_TIMEOUT_S),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def complete(self, body: dict[str, Any]) -> Answer:
        """POST /v1/completions. Cancellation closes the connection, which stops the engine. Raises GatewayRefused."""
        content = await self._send("POST", COMPLETIONS, body)
        try:
            completion = msgspec.json.decode(content, type=_Completion)
        except msgspec.DecodeError:
            sentence = f"POST {self._url}{COMPLETIONS} did not return the response of an API"
            raise GatewayRefused(UNREADABLE, sentence) from None
        return Answer(completion.id, completion.choices[0].text)

    async def report(self, completion_id: str, event: dict[str, Any]) -> None:
        """Report what the user did with a completion; ignored if the gateway takes no events.

        Raises GatewayRefused.
        """
        try:
            await self._send("POST", f"{COMPLETIONS}/{quote(completion_id, safe='')}/events", event)
        except GatewayRefused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise

    async def _send(self, method: str, path: str, body: object = None) -> bytes:
        try:
            try:
                response, content = await self._exchange(method, path, body)
            except aiohttp.ServerDisconnectedError:
                # the gateway closed an idle connection just as this request was sent
                response, content = await self._exchange(method, path, body)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise GatewayRefused(UNREACHABLE, f"{self._url} cannot be reached: {_why(error)}") from None
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return content
        wait_s = response.headers.get("retry-after", "")
        raise GatewayRefused(
            *_complaint(f"{method} {self._url}{path}", response.status, content),
            status=response.status,
            retry_after_s=float(wait_s) if wait_s.isdecimal() else None,
        )

    async def _exchange(self, method: str, path: str, body: object) -> tuple[aiohttp.ClientResponse, bytes]:
        # no redirects: the key is for this address only
        async with self._session.request(method, self._url + path, json=body, allow_redirects=False) as response:
            return response, await response.read()


def _why(error: Exception) -> str:
    """The reason in words. aiohttp's own message of a failed connection mentions ssl even without TLS."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    failed = error.os_error
    if isinstance(failed, ConnectionError) and failed.errno:
        return os.strerror(failed.errno)
    return failed.strerror or str(failed)


def _complaint(request: str, status: int, content: bytes) -> tuple[str, str]:
    """Code and message of an error response."""
    try:
        error = msgspec.json.decode(content, type=_Error).error
    except msgspec.DecodeError:
        return str(status), f"{request} was answered with status {status}"
    return error.code or str(status), error.message
