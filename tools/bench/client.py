"""Sends OpenAI-compatible requests and records when their events arrive."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import aiohttp
import msgspec
from aiohttp.http_exceptions import LineTooLong

from contracts.printable import printable
from tools.bench.answer import Answer
from tools.simulator.arrival import Arrival

CONNECT_S = 10.0
SILENCE_S = 300.0
"""Longest time without a byte; the gateway sends a comment every 15 s."""
MAX_LINE_BYTES = 1 << 20
MAX_REFUSAL_BYTES = 1 << 16
MAX_MESSAGE_CHARACTERS = 300
DATA, DONE = b"data: ", b"[DONE]"


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Details | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw(b"null")


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None

    @property
    def says(self) -> bool:
        delta = self.delta
        return bool(self.text) or (
            delta is not None
            and bool(delta.content or delta.reasoning_content or delta.reasoning or bytes(delta.tool_calls) != b"null")
        )


class _Fault(msgspec.Struct):
    message: str = ""
    code: str | int | None = None
    type: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Fault | str | None = None


class _Refusal(msgspec.Struct):
    error: _Fault | str | None = None


_event = msgspec.json.Decoder(_Event)


class Refused(Exception):
    """The server refused a request. fault: its status and code."""

    def __init__(self, fault: str, message: str) -> None:
        super().__init__(printable(message[:MAX_MESSAGE_CHARACTERS]))
        self.fault = printable(fault[:MAX_MESSAGE_CHARACTERS])


class Client:
    """One server. `async with` opens and closes it."""

    def __init__(self, url: str, key: str, path: str) -> None:
        """url: the server's, without `/v1`. path: the endpoint's, after `/v1`."""
        self._url = f"{url}/v1{path}"
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S),
            read_bufsize=MAX_LINE_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def ask(self, body: dict[str, Any], heard: Callable[[str], None] | None = None) -> Answer:
        """Get one response that is not part of the load. heard: called with a completion's text, event by event.
        Raises Refused with the server's message."""
        answer = Answer(Arrival(0.0, 1, 1))
        await self._read(answer, msgspec.json.encode(body), heard)
        return answer

    async def send(self, answer: Answer, body: bytes) -> None:
        """Send one request of the load and fill in its answer, including a fault."""
        try:
            await self._read(answer, body)
        except Refused as refused:
            answer.fault = refused.fault

    async def _read(self, answer: Answer, body: bytes, heard: Callable[[str], None] | None = None) -> None:
        begun, last, error, done = time.perf_counter(), None, None, False
        try:
            async with self._session.post(self._url, data=body) as response:
                if response.status != 200:
                    raise _refused(response.status, await response.content.read(MAX_REFUSAL_BYTES))
                async for line in response.content:
                    if not line.startswith(DATA):
                        continue
                    now, data = time.perf_counter(), line[len(DATA) :].strip()
                    if data == DONE:
                        done = True
                        break
                    event = _event.decode(data)
                    error = event.error or error
                    if event.usage is not None:
                        answer.prompt_tokens = event.usage.prompt_tokens
                        answer.output_tokens = event.usage.completion_tokens
                        details = event.usage.prompt_tokens_details
                        answer.cached_tokens = (details.cached_tokens or 0) if details is not None else 0
                    if heard is not None:
                        heard("".join(choice.text or "" for choice in event.choices))
                    if any(choice.says for choice in event.choices):
                        if last is None:
                            answer.first_s = now - begun
                        else:
                            answer.gaps_s.append(now - last)
                        last = now
        except TimeoutError as cause:
            raise Refused("timeout", str(cause) or f"no byte within {SILENCE_S:g} s") from None
        except (aiohttp.ClientError, OSError) as cause:
            raise Refused(type(cause).__name__, str(cause)) from None
        except msgspec.DecodeError as cause:
            raise Refused("unreadable event", str(cause)) from None
        except LineTooLong:
            raise Refused("unreadable event", f"a line is longer than {2 * MAX_LINE_BYTES:,} bytes") from None
        if error is not None:
            raise Refused(f"in the stream: {_code(error)}", _message(error))
        if not done:
            raise Refused("cut off", "the stream ended without [DONE]")
        answer.ended_s = time.perf_counter() - begun


def _refused(status: int, body: bytes) -> Refused:
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.DecodeError:
        error = None
    if error is None:
        return Refused(str(status), body.decode(errors="replace"))
    return Refused(f"{status} {_code(error)}", _message(error))


def _code(error: _Fault | str) -> str:
    return str(error.code or error.type or "error") if isinstance(error, _Fault) else "error"


def _message(error: _Fault | str) -> str:
    return error.message if isinstance(error, _Fault) else error
