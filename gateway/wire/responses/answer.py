"""Turns an engine's events into a response of the Responses API: a stream's events, or one whole body.

One class writes both, so that a stream's last event and the whole body are the same object. Pure: bytes in, bytes out.
`finish` writes everything from the engine's finish reason on: when a client has its calls, the attempt is closed.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from contracts.errors import EngineFailed, SlipstreamError
from contracts.usage import Usage
from gateway.wire.chunk import ReadError, finish_of, with_one_thought
from gateway.wire.event_reader import EventReader
from gateway.wire.openai.tool_calls import NO_ARGUMENTS, Calls, forces_call, openai_reason
from gateway.wire.prepared import Prepared
from gateway.wire.responses.envelope import settings, state
from gateway.wire.responses.events import event_of
from gateway.wire.responses.items import CUSTOM_PREFIX, ID_PREFIXES, Growing, GrowingCall, Kind
from gateway.wire.responses.prepare import Details
from gateway.wire.responses.schema import ENCRYPTED
from gateway.wire.usage_tracker import UsageTracker

MEMBERS = {"reasoning": "reasoning_content", "message": "content"}
"""The member of an engine's event that extends an item of each kind."""
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons of incomplete responses, by finish reason."""


class Answer(EventReader):
    """State of one attempt's response. response: the finished object's JSON, after `finish`."""

    characters = None
    text = None

    def __init__(
        self, response_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError, *, stream: bool
    ) -> None:
        super().__init__(usage, read_error)
        details = prepared.details
        assert isinstance(details, Details)
        self._id = response_id
        self._key = response_id.partition("_")[2]
        self._prepared = prepared
        self._names = details.names
        self._encrypted = ENCRYPTED in (details.asked.request.include or ())
        self._stream = stream
        self._sequence = 0
        self._sent = 0
        """Number of the first event that `finish` writes."""
        self._settings: dict[str, Any] = {}
        self._items: list[Growing] = []
        self._open: Growing | None = None
        """The growing reasoning or message."""
        self._calls = Calls(forced=forces_call(prepared.generation.prompt))
        self._made: list[GrowingCall] = []
        self._reason: str | None = None
        self._before = self._between = b""
        """The bytes of a usual event before its number, and between the number and its text."""
        self.response = b""

    @property
    def finished(self) -> bool:
        return self._reason is not None

    def finish(self) -> bytes:
        """The end of a complete response: the last events, or the whole body."""
        if not self.events:
            self._begin({})
        self._sent = self._sequence
        reason = INCOMPLETE.get(self._reason or "")
        status = "completed" if reason is None else "incomplete"
        if not self._items:
            self._growing("message")
        for number in self._calls.without_arguments(self._reason):
            self._grow_call(self._made[number], NO_ARGUMENTS)
        last = self._items[-1]
        for item in self._items:
            self._close(item, status if item is last else "completed")
        usage = self._usage.total or Usage()
        output = [self._json(item, status if item is last else "completed") for item in self._items]
        response = self._settings | state(status, output, usage, incomplete=reason, completed_at=int(time.time()))
        self.response = msgspec.json.encode(response)
        if not self._stream:
            return self.response
        self._emit(f"response.{status}", response=msgspec.Raw(self.response))
        return self._taken()

    def failed(self, error: SlipstreamError) -> bytes:
        """The event that ends a stream that has begun. The bytes that `finish` returned were not sent."""
        self._sequence = self._sent or self._sequence
        if not self.events:
            self._settings = settings(self._id, int(time.time()), self._prepared)
        output = [self._json(item, "completed" if item.status == "completed" else "incomplete") for item in self._items]
        response = self._settings | state("failed", output, self._usage.total, error)
        return self._event("response.failed", response=response)

    def _begin(self, chunk: dict[str, Any]) -> None:
        self._settings = settings(self._id, int(time.time()), self._prepared)
        if self._stream:
            begun = msgspec.Raw(msgspec.json.encode(self._settings | state("in_progress", [])))
            self._emit("response.created", response=begun)
            self._emit("response.in_progress", response=begun)

    def _add(self, choice: dict[str, Any]) -> None:
        self._grow(with_one_thought(choice.get("delta") or {}))
        reason = finish_of(choice)
        if reason is not None:
            self._reason = openai_reason(reason, calls=bool(self._made))

    def _extends(self, member: str) -> bool:
        item = self._open
        if item is None or item.refused or MEMBERS[item.kind] != member:
            return False
        kind = _delta_of(item).encode()
        self._before = b'event: %b\ndata: {"type":"%b","sequence_number":' % (kind, kind)
        self._between = b',%b,"delta":"' % msgspec.json.encode(_place_of(item))[1:-1]
        return True

    def _extend(self, insides: list[bytes]) -> None:
        assert self._open is not None
        self._open.grow(insides)
        if self._stream:
            before, between, number = self._before, self._between, self._sequence
            self._sequence += len(insides)
            self._out += [b'%b%d%b%b"}\n\n' % (before, at, between, text) for at, text in enumerate(insides, number)]

    def _grow(self, delta: dict[str, Any]) -> None:
        if thought := delta.get("reasoning_content"):
            self._grow_text(self._growing("reasoning"), thought)
        if content := delta.get("content"):
            self._grow_text(self._growing("message"), content)
        if refusal := delta.get("refusal"):
            self._grow_text(self._growing("message", refused=True), refusal)
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            arguments = function.get("arguments") or ""
            number = self._calls.add(call.get("index"), call.get("id"), function.get("name"), arguments)
            if number == len(self._made):
                self._begin_call(number)
            if arguments:
                self._grow_call(self._made[number], arguments)

    def _growing(self, kind: Kind, *, refused: bool = False) -> Growing:
        """The growing item of this kind: the open item if it is of this kind, otherwise a new one."""
        item = self._open
        if item is not None and item.kind == kind and item.refused is refused:
            return item
        self._close_open()
        item = self._open = Growing(kind, len(self._items), self._item_id(ID_PREFIXES[kind]))
        item.refused = refused
        self._items.append(item)
        self._emit("response.output_item.added", output_index=item.index, item=self._json(item, "in_progress"))
        self._part("added", item)
        return item

    def _begin_call(self, number: int) -> None:
        self._close_open()
        begun = self._calls.begun[number]
        named = self._names.of(begun.name)
        item_id = self._item_id(CUSTOM_PREFIX if named.custom else ID_PREFIXES["call"])
        item = GrowingCall(len(self._items), item_id, begun.id or f"call_{self._key}_{number}", named)
        self._items.append(item)
        self._made.append(item)
        self._emit("response.output_item.added", output_index=item.index, item=self._json(item, "in_progress"))

    def _grow_call(self, item: GrowingCall, arguments: str) -> None:
        item.grow(arguments)
        if not item.named.custom:  # a custom tool's text is known only when its arguments are whole
            self._emit(
                "response.function_call_arguments.delta",
                item_id=item.id,
                output_index=item.index,
                delta=arguments,
            )

    def _close_open(self) -> None:
        if self._open is not None:
            self._close(self._open, "completed")
            self._open = None

    def _close(self, item: Growing, status: str) -> None:
        """Close an item, whole or cut, and emit its last events, unless it is closed already."""
        if item.status != "in_progress":
            return
        item.status = status
        if not self._stream:
            return
        place, text = {"item_id": item.id, "output_index": item.index}, item.text
        if not isinstance(item, GrowingCall):
            if item.kind == "reasoning":
                self._emit("response.reasoning_text.done", **place, content_index=0, text=text)
            elif item.refused:
                self._emit("response.refusal.done", **place, content_index=0, refusal=text)
            else:
                self._emit("response.output_text.done", **place, content_index=0, text=text, logprobs=[])
            self._part("done", item)
        elif item.named.custom:
            text = self._json(item, status)["input"]
            self._emit("response.custom_tool_call_input.delta", **place, delta=text)
            self._emit("response.custom_tool_call_input.done", **place, input=text)
        else:
            name = item.named.name
            self._emit("response.function_call_arguments.done", **place, name=name, arguments=text)
        self._emit("response.output_item.done", output_index=item.index, item=self._json(item, status))

    def _grow_text(self, item: Growing, text: object) -> None:
        if not isinstance(text, str):
            raise EngineFailed("The engine sent a value that is not text where text belongs.")
        item.grow(text)
        self._emit(_delta_of(item), **_place_of(item), delta=text)

    def _part(self, what: str, item: Growing) -> None:
        part = item.part("" if what == "added" else item.text)
        self._emit(
            f"response.content_part.{what}", item_id=item.id, output_index=item.index, content_index=0, part=part
        )

    def _json(self, item: Growing, status: str) -> dict[str, Any]:
        return item.json(status, encrypted=self._encrypted)

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}{self._key}_{len(self._items)}"

    def _emit(self, kind: str, **fields: Any) -> None:
        if self._stream:
            self._out.append(self._event(kind, **fields))

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._sequence = self._sequence, self._sequence + 1
        return event_of(kind, number, fields)


def _delta_of(item: Growing) -> str:
    """The type of the event that extends the item's text."""
    if item.kind == "reasoning":
        return "response.reasoning_text.delta"
    return "response.refusal.delta" if item.refused else "response.output_text.delta"


def _place_of(item: Growing) -> dict[str, Any]:
    """The position of the growing text."""
    place = {"item_id": item.id, "output_index": item.index, "content_index": 0}
    return {**place, "logprobs": []} if item.kind == "message" and not item.refused else place
