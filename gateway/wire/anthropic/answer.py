"""Turns an engine's event stream into Anthropic's answer, streamed or whole.

One reader makes both from a sequence of blocks: thoughts, text and calls. A stream writes them as events; a whole
answer keeps them. Pure.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from contracts.errors import EngineFailed
from contracts.generation import Generation
from contracts.usage import Usage
from gateway.wire.anthropic.prepare import AnswerDetails
from gateway.wire.chunk import BROKEN_OFF, CallChunk, EventDelta, ReadError, finish_of, text_of_insides
from gateway.wire.event_reader import EventReader
from gateway.wire.openai.tool_calls import Calls, forces_call, is_object, openai_reason, wrapped
from gateway.wire.prepared import Prepared
from gateway.wire.usage_tracker import UsageTracker

SIGNATURE = "unsigned"
"""Sent in place of Anthropic's signature of a thought. Some clients drop a thought without a signature."""
MEMBERS = {"content": "text", "reasoning_content": "thinking"}
"""The block that each member of an engine's event extends."""
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class Sink(Protocol):
    """Writes an answer."""

    out: list[bytes]
    """Bytes that may be sent."""

    def begin(self, usage: Usage) -> None:
        """Begin the message. usage: known so far."""
        ...

    def start(self, index: int, block: dict[str, Any]) -> None:
        """Begin an empty block."""
        ...

    def add(self, index: int, kind: str, text: str) -> None:
        """Extend a block. kind: the field of its delta, `text`, `thinking` or `partial_json`."""
        ...

    def stop(self, index: int) -> None:
        """End a block."""
        ...

    def extend(self, index: int, kind: str, insides: list[bytes]) -> None:
        """Extend a block. insides: the contents of JSON strings."""
        ...

    def end(self, ending: Ending, usage: Usage) -> bytes:
        """End the answer. Returns the bytes that are left to send."""
        ...


class Ending(msgspec.Struct, frozen=True):
    """The end of a message."""

    reason: str
    stop_sequence: str | None
    edits: bool
    """See `AnswerDetails`."""


class MessageReader(EventReader):
    """State of one attempt's answer."""

    text = None
    """Not kept in this format."""
    characters = None

    def __init__(self, sink: Sink, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> None:
        """usage: receives every event. read_error: the dialect's `Driver.error`."""
        super().__init__(usage, read_error)
        generation = prepared.generation
        self._sink = sink
        self._out = sink.out
        self._details = prepared.details if isinstance(prepared.details, AnswerDetails) else AnswerDetails()
        self._stops = generation.sampling.stop
        self._prompt_tokens = prepared.prompt_tokens
        self._request_id = generation.request_id
        self._kind = ""
        """Kind of the open block, `text`, `thinking` or `call`; "" if none is open."""
        self._next = 0
        """Index of the next block."""
        self._calls = Calls(forced=forces_call(generation.prompt))
        self._call = 0
        """Number of the call whose block is open, or was the last one open."""
        self._begun: set[int] = set()
        """Calls whose block has begun or is in `_deferred`."""
        self._arguments: dict[int, bytearray] = {}
        """Arguments of each call that has not ended. They are sent whole, as Anthropic does by default: clients parse
        them as JSON in chunks, and an invalid escape ends their stream."""
        self._deferred: list[tuple[str, str, int]] = []
        """Kind, text and call of each part that came before the open call was whole, and of later parts. They never
        overlap."""
        self._reason: str | None = None
        """The engine's finish reason."""
        self._stop_sequence: str | None = None
        self._refused = False
        """Whether the model has refused, in a text of its own."""

    @property
    def finished(self) -> bool:
        return self._reason is not None

    def finish(self) -> bytes:
        if not self.events:
            self._begin({})
        for number in sorted(self._arguments.keys() - self._begun):
            self._take("call", call=number)
        for kind, text, number in self._deferred:
            self._write(kind, text, number)
        self._close()
        return self._sink.end(self._ending(), self._told())

    def _begin(self, chunk: dict[str, Any]) -> None:
        self._sink.begin(self._told())

    def _add(self, choice: dict[str, Any]) -> None:
        if choice.get("finish_reason") in BROKEN_OFF:
            return
        self._grow(_delta(choice))
        if (reason := finish_of(choice)) is not None:
            self._reason = reason
            self._stop_sequence = self._matched(choice)

    def _extends(self, member: str) -> bool:
        return bool(self._kind) and MEMBERS.get(member) == self._kind and not self._deferred

    def _extend(self, insides: list[bytes]) -> None:
        if self._kind == "text" or self._details.shows_thoughts:
            self._sink.extend(self._next - 1, self._kind, insides)

    def _grow(self, delta: EventDelta) -> None:
        thought = delta.reasoning_content
        if thought is None and isinstance(delta.reasoning, str):
            thought = delta.reasoning
        if thought:
            self._take("thinking", thought)
        self._refused = self._refused or bool(delta.refusal)
        for text in (delta.content, delta.refusal):
            if text:
                self._take("text", text)
        for chunk in delta.tool_calls or ():
            self._take_call(chunk)

    def _take_call(self, chunk: CallChunk) -> None:
        function = chunk.function
        name, arguments = (None, None) if function is None else (function.name, function.arguments)
        number = self._calls.add(chunk.index, chunk.id, name, arguments)
        if number not in self._begun:
            self._arguments.setdefault(number, bytearray())
        if self._calls.begun[number].name and number not in self._begun:
            self._begun.add(number)
            self._take("call", call=number)
        if arguments and number in self._arguments:
            self._arguments[number].extend(arguments.encode())

    def _take(self, kind: str, text: str = "", call: int = 0) -> None:
        """Write a part, or defer it while the open call is not whole: engines may mix chunks of two calls."""
        if self._deferred or (self._kind == "call" and not is_object(self._arguments[self._call])):
            self._deferred.append((kind, text, call))
        else:
            self._write(kind, text, call)

    def _write(self, kind: str, text: str, call: int) -> None:
        if kind == "call":
            begun = self._calls.begun[call]
            begun.id = begun.id or f"toolu_{self._request_id.removeprefix('req_')}_{call}"
            self._open(kind, {"type": "tool_use", "id": begun.id, "name": begun.name, "input": {}})
            self._call = call
            return
        if self._kind != kind:
            empty = {"signature": ""} if kind == "thinking" else {}
            self._open(kind, {"type": kind, kind: "", **empty})
        if kind == "text" or self._details.shows_thoughts:
            self._sink.add(self._next - 1, kind, text)

    def _open(self, kind: str, block: dict[str, Any]) -> None:
        self._close()
        self._kind = kind
        self._sink.start(self._next, block)
        self._next += 1

    def _close(self) -> None:
        if self._kind == "thinking":
            self._sink.add(self._next - 1, "signature", SIGNATURE)
        elif self._kind == "call" and (arguments := self._ended_arguments()):
            self._sink.add(self._next - 1, "partial_json", arguments.decode())
        if self._kind:
            self._sink.stop(self._next - 1)
        self._kind = ""

    def _ended_arguments(self) -> bytes:
        """Arguments of the open call at its end, a JSON object; b"" if there are none or if they were cut, because a
        client could take their beginning for the whole."""
        arguments = bytes(self._arguments.pop(self._call)).strip()
        if not arguments or is_object(arguments):
            return arguments
        cut = self._ending().reason not in ("tool_use", "end_turn")
        return b"" if cut else wrapped(arguments.decode())

    def _matched(self, choice: dict[str, Any]) -> str | None:
        """The request's stop sequence that ended the answer, as SGLang, vLLM and TensorRT-LLM report it. None if the
        engine reports none: an end token and a stop sequence cannot be distinguished then."""
        for name in ("matched_stop", "stop_reason"):
            if (matched := choice.get(name)) in self._stops:
                return str(matched)
        return None

    def _ending(self) -> Ending:
        reason = _REASONS[openai_reason(self._reason or "stop", calls=bool(self._calls.begun))]
        if reason == "max_tokens" and self._details.lowered:
            reason = "model_context_window_exceeded"
        if reason == "end_turn" and self._refused:
            reason = "refusal"
        stop = self._stop_sequence if reason == "end_turn" else None
        return Ending("stop_sequence" if stop is not None else reason, stop, self._details.edits)

    def _told(self) -> Usage:
        """The engine's count so far; before its first report, the gateway's count of the prompt."""
        reported = self._usage.total
        return Usage(self._prompt_tokens) if reported is None or not reported.prompt_tokens else reported


class StreamSink:
    """Writes the answer as events."""

    def __init__(self, message: dict[str, Any]) -> None:
        """message: the fields that every answer has."""
        self._message = message
        self.out: list[bytes] = []

    def begin(self, usage: Usage) -> None:
        message = {**self._message, "content": [], "stop_reason": None, "stop_sequence": None}
        self._event("message_start", message={**message, "usage": usage_json(usage)})

    def start(self, index: int, block: dict[str, Any]) -> None:
        self._event("content_block_start", index=index, content_block=block)

    def add(self, index: int, kind: str, text: str) -> None:
        self.extend(index, kind, [msgspec.json.encode(text)[1:-1]])

    def extend(self, index: int, kind: str, insides: list[bytes]) -> None:
        head = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b_delta",'
            b'"%b":"' % (index, _DELTAS[kind], kind.encode())
        )
        self.out += [b'%b%b"}}\n\n' % (head, inside) for inside in insides]

    def stop(self, index: int) -> None:
        self._event("content_block_stop", index=index)

    def end(self, ending: Ending, usage: Usage) -> bytes:
        delta = {"stop_reason": ending.reason, "stop_sequence": ending.stop_sequence}
        self._event("message_delta", delta=delta, usage=usage_json(usage), **_edits(ending))
        self._event("message_stop")
        return b"".join(self.out)

    def _event(self, kind: str, **fields: Any) -> None:
        self.out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields})))


class WholeSink:
    """Keeps the blocks of a whole answer. Texts are UTF-8 until the end, because appending to a string copies it."""

    def __init__(self, message: dict[str, Any]) -> None:
        """message: the fields that every answer has."""
        self._message = message
        self.out: list[bytes] = []
        self._blocks: list[dict[str, Any]] = []
        self._texts: list[dict[str, bytearray]] = []

    def begin(self, usage: Usage) -> None:
        """Nothing is sent before the end."""

    def start(self, index: int, block: dict[str, Any]) -> None:
        self._blocks.append(block)
        self._texts.append({})

    def add(self, index: int, kind: str, text: str) -> None:
        self._texts[index].setdefault(kind, bytearray()).extend(text.encode())

    def extend(self, index: int, kind: str, insides: list[bytes]) -> None:
        self.add(index, kind, text_of_insides(insides))

    def stop(self, index: int) -> None:
        """Nothing is sent before the end."""

    def end(self, ending: Ending, usage: Usage) -> bytes:
        for block, texts in zip(self._blocks, self._texts, strict=True):
            for kind, text in texts.items():
                if kind == "partial_json":
                    block["input"] = msgspec.Raw(bytes(text))
                else:
                    block[kind] = text.decode()
        return msgspec.json.encode(
            {
                **self._message,
                "content": self._blocks,
                "stop_reason": ending.reason,
                "stop_sequence": ending.stop_sequence,
                "usage": usage_json(usage),
                **_edits(ending),
            }
        )


_DELTAS = {"text": b"text", "thinking": b"thinking", "signature": b"signature", "partial_json": b"input_json"}


def message_of(response_id: str, generation: Generation) -> dict[str, Any]:
    """The fields that every answer to a generation has."""
    return {"id": response_id, "type": "message", "role": "assistant", "model": generation.public_model}


def _edits(ending: Ending) -> dict[str, Any]:
    """The field for a client that requested edits of its context: none was applied."""
    return {"context_management": {"applied_edits": []}} if ending.edits else {}


def usage_json(usage: Usage) -> dict[str, Any]:
    """Anthropic's counts. `input_tokens` excludes tokens that were read from a cache and tokens that were written to it
    at a charge; the three counts together are OpenAI's `prompt_tokens`."""
    read = min(usage.cached_tokens, usage.prompt_tokens)
    written = min(usage.cache_write_tokens, usage.prompt_tokens - read)
    return {
        "input_tokens": usage.prompt_tokens - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _delta(choice: dict[str, Any]) -> EventDelta:
    try:
        return msgspec.convert(choice.get("delta") or {}, EventDelta)
    except msgspec.ValidationError as error:
        raise EngineFailed("The engine sent an event that does not have OpenAI's form.", detail=str(error)) from None
