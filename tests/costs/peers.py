"""A gateway's peers in memory: a Valkey that admits every request or none, a router with one engine per model, an
engine that responds with a given number of tokens, and a client. They count nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hiredis
import msgspec

from contracts.lease import Engine, Lease
from contracts.proto import router_pb2 as pb
from router.protocol import messages
from router.protocol.framing import FrameReader, framed
from tests.costs.memory_loop import Peer, Wire
from tests.fakes.chunks import CHUNK, DONE, ChunkWriter

LEFT = 60_000_000
"""The rest of every limit per minute, in units of 1/60000."""
CREATED = 1_800_000_000
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


class MemoryValkey(Peer):
    """A Valkey that counts nothing. rules: the number of rules for each request. refuses: whether the second rule's
    requests per minute refuse every reservation."""

    name = "Valkey"

    def __init__(self, rules: int) -> None:
        self.refuses = False
        self._left = [LEFT] * 7 * rules
        self._reader = hiredis.Reader()

    def received(self, data: bytes, wire: Wire) -> None:
        self._reader.feed(data)
        while (command := self._reader.gets()) is not False:
            wire.send(self._reply(command))

    def _reply(self, command: list[bytes]) -> bytes:
        if command[0] == b"EVALSHA" and b"reserve" in command:
            refused = [1, 2, 1, 1_500] if self.refuses else [0, 0, 0, 0]
            return _numbers([*refused, CREATED * 1_000, *self._left])
        if command[0] == b"EVALSHA":
            return _numbers([1])
        if command[0] == b"INFO":
            return b"$14\r\nrun_id:" + b"0" * 7 + b"\r\n"
        return b"*0\r\n"


class MemoryRouter(Peer):
    """A router that grants every lease at once, and has no idle replica for warm-ups."""

    name = "the router"

    def __init__(self, engines: dict[str, Engine]) -> None:
        """engines: the engine of each model."""
        self._engines = engines
        self._reader = FrameReader(messages.MAX_MESSAGE_BYTES)
        self._opened = False

    def received(self, data: bytes, wire: Wire) -> None:
        for payload in self._reader.feed(data):
            if not self._opened:
                self._opened = True
                wire.send(framed(pb.RouterMessage(welcome=pb.Welcome(router_epoch="epoch", grace_ms=10_000))))
                continue
            message = pb.GatewayMessage.FromString(payload)
            if message.WhichOneof("body") == "acquire":
                wire.send(framed(self._answer(message.acquire)))

    def _answer(self, ask: pb.Acquire) -> pb.RouterMessage:
        if ask.idle_replica:
            return pb.RouterMessage(shed=pb.Shed(lease_id=ask.lease_id, code="no_engine", reason="No replica is idle."))
        return messages.grant(Lease(ask.lease_id, self._engines[ask.model]))


class Asked(msgspec.Struct):
    """The fields of a request to an engine that its answer needs."""

    model: str
    rid: str = "chatcmpl-1"
    stream_options: dict[str, bool] = {}


class MemoryEngine(Peer):
    """An engine that streams one token per event and one event per read. Its JSON is SGLang's; with `spaced`, it has
    the spaces of `json.dumps`; with `together`, a whole response is one read."""

    name = "the engine"

    def __init__(self) -> None:
        self.tokens = 16
        self.spaced = self.together = False

    def received(self, data: bytes, wire: Wire) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        asked = msgspec.json.decode(body, type=Asked)
        chat = b"/v1/chat/completions" in head
        writer = ChunkWriter(
            chat=chat,
            model=asked.model,
            created=CREATED,
            ids=[asked.rid],
            prompt_tokens=64,
            cached_tokens=32,
            running_usage=asked.stream_options.get("continuous_usage_stats", False),
            logprobs=False,
            texts=tuple(" word" for _ in range(self.tokens)),
        )
        events = [writer.role(0)] if chat else []
        events += [writer.token(0, index) for index in range(self.tokens)]
        events += [writer.finish(0, b'"stop"', self.tokens), writer.usage(1, self.tokens)]
        pieces = [CHUNK % (len(event), event) for event in (map(_spaced, events) if self.spaced else events)]
        pieces = [HEAD, *pieces, CHUNK % (len(DONE), DONE) + b"0\r\n\r\n"]
        for piece in (b"".join(pieces),) if self.together else pieces:
            wire.send(piece)


class MemoryClient(Peer):
    """A client that keeps the response to its last request."""

    name = "the client"

    def __init__(self) -> None:
        self.answer = b""
        self.wire: Wire

    def connect(self, opened: Callable[[Peer], tuple[Wire, Any]]) -> None:
        self.wire, _ = opened(self)

    def ask(self, request: bytes) -> None:
        self.answer = b""
        self.wire.send(request)

    def received(self, data: bytes, wire: Wire) -> None:
        self.answer += data


def _numbers(numbers: list[int]) -> bytes:
    return b"*%d\r\n" % len(numbers) + b"".join([b":%d\r\n" % number for number in numbers])


def _spaced(event: bytes) -> bytes:
    chunk = msgspec.json.decode(event.removeprefix(b"data: "))
    return b"data: " + msgspec.json.format(msgspec.json.encode(chunk), indent=0) + b"\n\n"
