"""Requests known streams and records when each event arrives."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Any

import aiohttp
import msgspec

from contracts.stream_audit import DONE, PATH, AuditEvent, Opening
from slipstream.stream_audit.measured import Received, Stream
from slipstream.stream_audit.not_measured import NotMeasured
from slipstream.stream_audit.stalls import stalls_noted

GRACE_S = 15.0
"""Seconds that a stream may take beyond its requested length, including its head."""
MAX_LINE_BYTES = 65_536
MAX_ERROR_BYTES = 2_000
DATA = b"data:"
_event = msgspec.json.Decoder(AuditEvent)


class AuditClient:
    """One connection at a time to one gateway. `async with` opens and closes it."""

    def __init__(self, url: str, key: str, client_request_id: str, context: ssl.SSLContext | None) -> None:
        """url: without a path. context: the trusted authorities, for https."""
        self._url = url
        self._headers = {
            "authorization": f"Bearer {key}",
            "accept": "text/event-stream",
            "accept-encoding": "gzip, deflate",
            "x-client-request-id": client_request_id,
        }
        self._context = context
        self._connected = False
        """Whether the current request needed a new connection."""
        self._sent_s = 0.0
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> AuditClient:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_start.append(self._connects)
        trace.on_request_headers_sent.append(self._sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, ssl=self._context if self._context is not None else True),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[trace],
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def stream(self, events: int, interval_ms: int) -> Stream:
        """One stream, read until it ends or breaks off. Raises NotMeasured if it never begins."""
        limit_s = (events - 1) * interval_ms / 1e3 + GRACE_S
        clock = asyncio.get_running_loop().time
        reader, failure = EventReader(), ""
        self._connected, self._sent_s = False, 0.0
        query = {"events": str(events), "interval_ms": str(interval_ms)}
        async with stalls_noted() as stalls:
            response: aiohttp.ClientResponse | None = None
            try:
                async with (
                    asyncio.timeout(limit_s),
                    self._session.get(
                        self._url + PATH, params=query, headers=self._headers, allow_redirects=False
                    ) as response,
                ):
                    await _require_stream(response)
                    async for data, ends_chunk in response.content.iter_chunks():
                        reader.feed(data, clock(), ends_chunk)
            except TimeoutError:
                failure = f"nothing more arrived within {limit_s:g} s"
            except (aiohttp.ClientError, OSError) as error:
                failure = f"{type(error).__name__}: {error}"
            if response is None or (not reader.received and failure):
                raise NotMeasured(f"{self._url}{PATH} could not be read: {failure}")
        version = response.version
        return Stream(
            events=events,
            interval_ms=interval_ms,
            status=response.status,
            http_version=f"{version.major}.{version.minor}" if version is not None else "",
            headers={name.lower(): value for name, value in response.headers.items()},
            opening=reader.opening,
            received=tuple(reader.received),
            stalls=tuple(stalls),
            new_connection=self._connected,
            asked_s=self._sent_s,
            ended_s=clock(),
            complete=reader.done and not failure,
            failure=failure or reader.said,
        )

    async def _connects(self, *_: Any) -> None:
        self._connected = True

    async def _sent(self, *_: Any) -> None:
        self._sent_s = asyncio.get_running_loop().time()


class EventReader:
    """Parses events from a stream's bytes, which may be split anywhere. It does no I/O."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.opening: Opening | None = None
        self.done = False
        self.said = ""
        """The gateway's own error, if it ended the stream with one."""
        self._rest = b""
        self._chunk = 0

    def feed(self, data: bytes, arrived_s: float, ends_chunk: bool) -> None:
        """Take bytes with their time of arrival. ends_chunk: whether they complete an HTTP chunk. Raises NotMeasured if
        this is no audit stream."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise NotMeasured(f"the stream has a line of more than {MAX_LINE_BYTES} bytes: this is no audit stream")
        for line in lines:
            if line.startswith(DATA):
                self._take(line[len(DATA) :].strip(), len(line) + 2, arrived_s)
        self._chunk += ends_chunk

    def _take(self, text: bytes, size: int, arrived_s: float) -> None:
        if text == DONE.encode():
            self.done = True
            return
        if text.startswith(b'{"error"'):
            self.said = text.decode(errors="replace")[:MAX_ERROR_BYTES]
            return
        try:
            event = _event.decode(text)
        except msgspec.DecodeError as error:
            raise NotMeasured(f"the stream has an event that cannot be read: {error}") from None
        if event.number != len(self.received):
            raise NotMeasured(f"event {len(self.received)} is missing; {event.number} arrived instead")
        if event.opening is not None:
            self.opening = event.opening
        self.received.append(Received(event.number, event.sent_us, arrived_s, size, self._chunk))


async def _require_stream(response: aiohttp.ClientResponse) -> None:
    """Raises NotMeasured, which quotes the response, if it is no event stream."""
    kind = response.headers.get("content-type", "")
    if response.status == 200 and kind.startswith("text/event-stream"):
        return
    body = (await response.content.read(MAX_ERROR_BYTES)).decode(errors="replace")
    advice = ""
    if response.status == 404:
        advice = f" Is this a Slipstream gateway, and does {PATH} reach it?"
    elif response.status == 200:
        advice = f" Something other than a gateway answered, with {kind or 'no content-type'}."
    raise NotMeasured(f"{response.url.path} was answered with {response.status}: {' '.join(body.split())}{advice}")
