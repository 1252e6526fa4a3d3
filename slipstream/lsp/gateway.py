"""The gateway as the language server knows it: models, completions, events, over connections that are kept."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Meta

from slipstream.lsp.memory import Answer

CONNECT_TIMEOUT_S = 5.0
KEPT_S = 60.0
"""An idle connection; gateways keep theirs for 75 s unless told otherwise."""
MODEL_NOT_FOUND = "model_not_found"
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


class _Model(msgspec.Struct):
    id: str
    tier: str = ""


class _Models(msgspec.Struct):
    data: list[_Model]


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


AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)


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

    async def autocomplete_model(self) -> str:
        """The first one that the key may use. Raises GatewayRefused."""
        for model in (await self._ask("GET", "/v1/models", _Models)).data:
            if model.tier == "autocomplete":
                return model.id
        raise GatewayRefused(MODEL_NOT_FOUND, f"{self._url} serves this key no autocomplete model; set `model`")

    async def complete(self, body: dict[str, Any]) -> Answer:
        """POST /v1/completions. Cancelled, it closes its connection, which stops the engine. Raises GatewayRefused."""
        answered = await self._ask("POST", "/v1/completions", _Completion, body)
        return Answer(answered.id, answered.choices[0].text)

    async def report(self, completion_id: str, event: dict[str, Any]) -> None:
        """Tell what the user did with a completion; a gateway that takes no events is left alone.

        Raises GatewayRefused.
        """
        try:
            await self._send("POST", f"/v1/completions/{quote(completion_id, safe='')}/events", event)
        except GatewayRefused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise

    async def _ask(self, method: str, path: str, kind: type[AnswerT], body: object = None) -> AnswerT:
        content = await self._send(method, path, body)
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError:
            raise GatewayRefused(UNREADABLE, f"{method} {self._url}{path} was not answered as an API does") from None

    async def _send(self, method: str, path: str, body: object = None) -> bytes:
        try:
            try:
                response, content = await self._exchange(method, path, body)
            except aiohttp.ServerDisconnectedError:
                # it let a kept connection go at the moment this was sent on it
                response, content = await self._exchange(method, path, body)
        except (aiohttp.ClientError, TimeoutError) as error:
            what = str(error) or type(error).__name__
            raise GatewayRefused(UNREACHABLE, f"{self._url} cannot be reached: {what}") from None
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


def _complaint(request: str, status: int, content: bytes) -> tuple[str, str]:
    """Code and sentence of an answer that is an error."""
    try:
        error = msgspec.json.decode(content, type=_Error).error
    except msgspec.DecodeError:
        return str(status), f"{request} was answered with status {status}"
    return error.code or str(status), error.message
