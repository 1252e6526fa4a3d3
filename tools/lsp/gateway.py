"""The gateway as the language server knows it: completions and events, over connections that are kept."""

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
"""An idle connection; gateways keep theirs for 75 s unless told otherwise."""
COMPLETIONS = "/v1/completions"
UNREACHABLE = "unreachable"
UNREADABLE = "unreadable"


class GatewayRefused(Exception):
    """No answer. code: the API's, or one of those above. sentence: for the user; the API's own where it gave one.

    status: of the answer; None: there was none. retry_after_s: when it makes sense to ask again; None: it was not said.
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
    """A client of one gateway, made inside the loop that it is used in; `close` it."""

    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=KEPT_S),
            headers={"user-agent": "slipstream-lsp"} | ({"authorization": f"Bearer {key}"} if key else {}),
            timeout=aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_TIMEOUT_S),
        )

    async def close(self) -> None:
        """Let the connections go."""
        await self._session.close()

    async def complete(self, body: dict[str, Any]) -> Answer:
        """POST /v1/completions. Cancelled, it closes its connection, which stops the engine. Raises GatewayRefused."""
        content = await self._send("POST", COMPLETIONS, body)
        try:
            answered = msgspec.json.decode(content, type=_Completion)
        except msgspec.DecodeError:
            sentence = f"POST {self._url}{COMPLETIONS} did not return the response of an API"
            raise GatewayRefused(UNREADABLE, sentence) from None
        return Answer(answered.id, answered.choices[0].text)

    async def report(self, completion_id: str, event: dict[str, Any]) -> None:
        """Tell what the user did with a completion; a gateway that takes no events is left alone.

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
                # it let a kept connection go at the moment this was sent on it
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
    """aiohttp's own sentence of a connection that failed speaks of ssl where there is none."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    failed = error.os_error
    if isinstance(failed, ConnectionError) and failed.errno:
        return os.strerror(failed.errno)
    return failed.strerror or str(failed)


def _complaint(request: str, status: int, content: bytes) -> tuple[str, str]:
    """Code and sentence of an answer that is an error."""
    try:
        error = msgspec.json.decode(content, type=_Error).error
    except msgspec.DecodeError:
        return str(status), f"{request} was answered with status {status}"
    return error.code or str(status), error.message
