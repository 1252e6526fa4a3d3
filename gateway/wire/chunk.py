"""Reads an engine's events, which are OpenAI's chunks whichever format the client speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec

from contracts.errors import EngineFailed, SlipstreamError
from engines.drivers.engine_json import decode_engine_json
from engines.drivers.error_bodies import event_error
from engines.http.repeated_event import CountedEvent, RepeatedEvent

ReadError = Callable[[int, bytes], SlipstreamError]
"""Reads an engine's error from its status and body, like `Driver.error`."""

MAX_CHOICES = 100_000
"""Limit of a choice's index, which the engine sends."""
TEXTS = ("reasoning_content", "content", "refusal")
"""The texts of a chat event's `delta` (see `with_one_thought`). A completion has its text in the choice's `text`."""


LESSONS = 8
"""Limit of usual events learned in a stream. A stream whose events keep changing is not worth comparing."""
ABORT = "abort"
"""finish_reason of an aborted choice. Either the gateway stopped it and had already ended the response, or the engine
stopped it and has failed."""
BROKEN_OFF = frozenset({ABORT, "error", "cancelled", "timeout", "insufficient_system_resource"})
"""Finish reasons of incomplete answers; the last three are TensorRT-LLM's and DeepSeek's."""


class UnreadableEvent(EngineFailed):
    """An event cannot be read. before: client bytes of the earlier events of the same read."""

    def __init__(self, failure: EngineFailed, before: bytes) -> None:
        super().__init__(failure.message, retry_after_s=failure.retry_after_s, detail=failure.detail)
        self.before = before


class FunctionChunk(msgspec.Struct, gc=False):
    """The function of a `CallChunk`."""

    name: str | None = None
    arguments: str | None = None


class CallChunk(msgspec.Struct, gc=False):
    """A part of a tool call."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: FunctionChunk | None = None


class _DeltaShape(msgspec.Struct, gc=False):
    tool_calls: list[CallChunk] | None = None


class _ChoiceShape(msgspec.Struct, gc=False):
    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_CHOICES)] | None = None
    text: str | None = None
    delta: _DeltaShape | None = None
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None


class _Shape(msgspec.Struct, gc=False):
    """The structure that readers of events rely on; other members may have any value."""

    choices: list[_ChoiceShape] | None = None


def decoded(payload: bytes) -> dict[str, Any]:
    """An event's JSON object. Raises EngineFailed if the event is not a JSON object of OpenAI's form."""
    chunk = decode_engine_json(payload, object, "The engine sent an event that is not JSON.")
    if not isinstance(chunk, dict):
        raise EngineFailed("The engine sent an event that is not an object.")
    try:
        msgspec.convert(chunk, _Shape)
    except msgspec.ValidationError as error:
        raise EngineFailed("The engine sent an event that does not have OpenAI's form.", detail=str(error)) from None
    return chunk


def require_asked(chunk: dict[str, Any], choices: int) -> None:
    """Raise EngineFailed for a choice that was not requested."""
    for choice in chunk.get("choices") or ():
        if int(choice.get("index") or 0) >= choices:
            raise EngineFailed("The engine wrote a choice that was not requested.")


def created_of(chunk: dict[str, Any]) -> int:
    """Start of the response, Unix time in seconds; 0 if the engine sends no valid time."""
    created = chunk.get("created")
    return created if isinstance(created, int) else 0


def error_in(chunk: dict[str, Any], read: ReadError) -> SlipstreamError | None:
    """The error that an engine reports inside a stream, without its internals. read: the dialect's `Driver.error`."""
    if chunk.get("error") or chunk.get("object") == "error":
        return event_error(msgspec.json.encode(chunk), read)
    return None


def finish_of(choice: dict[str, Any]) -> str | None:
    """The reason why a choice has ended; None if it has not ended or is incomplete."""
    reason: str | None = choice.get("finish_reason")
    return None if reason in BROKEN_OFF else reason or None


def texts_of(chunk: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """(choice, generated text) for every choice that an event extends, including reasoning, refusal and calls."""
    for choice in chunk.get("choices") or ():
        delta = with_one_thought(choice.get("delta") or {})
        text = str(choice.get("text") or "")
        for name in TEXTS:
            if written := delta.get(name):
                text += str(written)
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            text += f"{function.get('name') or ''}{function.get('arguments') or ''}"
        if text:
            yield int(choice.get("index") or 0), text


def with_one_thought(delta: dict[str, Any]) -> dict[str, Any]:
    """The delta with the model's reasoning as `reasoning_content` instead of vLLM's `reasoning`. TensorRT-LLM writes it
    under both names."""
    if "reasoning" not in delta:
        return delta
    thought = delta.get("reasoning_content")
    thought = delta["reasoning"] if thought is None else thought
    renamed = {"reasoning_content" if name == "reasoning" else name: value for name, value in delta.items()}
    return {**renamed, "reasoning_content": thought}


def has_text(chunk: dict[str, Any]) -> bool:
    """Whether an event carries generated text, and not only a role or a finish."""
    return next(texts_of(chunk), None) is not None


class EventDelta(msgspec.Struct, gc=False):
    """The text that an event adds to a chat choice."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | msgspec.UnsetType | None = msgspec.UNSET
    refusal: str | None = None
    tool_calls: list[CallChunk] | None = None


class EventChoice(msgspec.Struct, gc=False):
    """One choice in an event."""

    index: int = 0
    text: str | None = None
    delta: EventDelta | None = None
    finish_reason: str | None = None


class Event(msgspec.Struct, gc=False):
    """The fields of a usual event that readers need. Decoding only these costs a third of decoding all fields, and
    still detects invalid JSON."""

    choices: list[EventChoice]
    error: Any = None


decode_event = msgspec.json.Decoder(Event).decode
_NULL = msgspec.Raw(b"null")


class _MoreChoice(EventChoice, gc=False):
    logprobs: msgspec.Raw = _NULL


class _More(msgspec.Struct, gc=False):
    """An event with the members that are not text."""

    choices: list[_MoreChoice]
    usage: msgspec.Raw = _NULL


_decode_more = msgspec.json.Decoder(_More).decode


def text_of(choice: EventChoice) -> str:
    """The model's text of one choice; see `texts_of`."""
    text, delta = choice.text or "", choice.delta
    if delta is None:
        return text
    if delta.reasoning_content is not None or delta.reasoning is not msgspec.UNSET or delta.refusal or delta.tool_calls:
        return text + _unusual_text_of(delta)
    return text + (delta.content or "")


def _unusual_text_of(delta: EventDelta) -> str:
    thought = delta.reasoning_content
    if thought is None:
        thought = delta.reasoning or ""
    functions = [call.function for call in delta.tool_calls or () if call.function is not None]
    called = "".join(f"{function.name or ''}{function.arguments or ''}" for function in functions)
    return f"{thought}{delta.content or ''}{delta.refusal or ''}{called}"


def only_text(choice: EventChoice) -> tuple[str, str] | None:
    """Name and value of the only text in an event's choice; None if it has no text, several texts or a call."""
    delta = choice.delta
    if delta is None:
        return ("text", choice.text) if choice.text else None
    if delta.tool_calls or delta.refusal or delta.reasoning is not msgspec.UNSET or choice.text:
        return None
    if delta.reasoning_content:
        return None if delta.content else ("reasoning_content", delta.reasoning_content)
    return ("content", delta.content) if delta.content else None


def repeated(payload: bytes, name: str, text: str) -> RepeatedEvent | None:
    """The usual event of a stream, learned from one whose only text is the member `name`; None if its bytes do not show
    where the text is."""
    begin = b'"%b":"' % name.encode()
    at = payload.find(begin)
    if at < 0 or payload.count(begin[:-2]) != 1 or b"\n" in payload:
        return None  # an event of several lines has other bytes on the wire
    start = at + len(begin)
    end = payload.find(b'"', start)  # a text with an escaped quote ends too early here and is not learned
    if end < 0 or payload[start:end] != text.encode():
        return None
    return RepeatedEvent(payload[:start], payload[end:])


def learned(payload: bytes) -> tuple[str, RepeatedEvent | CountedEvent] | None:
    """The usual event of a stream with one choice, learned from this event, and the member that holds its text. None if
    the event has more than a text and the running usage, or if its bytes do not show where they are."""
    if b'"logprobs":{' in payload:
        return None
    try:
        event = _decode_more(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    choices = event.choices
    if len(choices) != 1 or choices[0].index or choices[0].finish_reason is not None:
        return None
    if choices[0].logprobs != _NULL:
        return None
    if (member := only_text(choices[0])) is None or (usual := repeated(payload, *member)) is None:
        return None
    if event.usage == _NULL:
        return member[0], usual
    counted = CountedEvent.after(usual, bytes(event.usage))
    return None if counted is None else (member[0], counted)


def text_of_insides(insides: list[bytes]) -> str:
    """The joined text of usual events. insides: the contents of their JSON strings."""
    return msgspec.json.decode(b'"%b"' % b"".join(insides), type=str)


def texts_in(payload: bytes) -> list[tuple[int, str]]:
    """Like `texts_of`, for an undecoded event. An invalid event counts as one empty text."""
    try:
        return [(choice.index, text) for choice in decode_event(payload).choices if (text := text_of(choice))]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _unusual_texts_in(payload)


def _unusual_texts_in(payload: bytes) -> list[tuple[int, str]]:
    try:
        return list(texts_of(msgspec.json.decode(payload)))
    except (msgspec.DecodeError, AttributeError, TypeError, ValueError, RecursionError):
        return [(0, "")]
