"""Turns an engine's event stream into ours, byte for byte where possible.

The relay works on events, not reads: one read may hold half an event or ten. Pure: bytes in, bytes out. It decodes only
the first, the finishing and unusual events, and all of them if there are several choices. In other events, it replaces
id and model and cuts out running usage in place. `rewrite_decoded` is the slow equivalent that decodes everything: it
handles events of an unfamiliar layout, and tests compare the two.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from contracts.errors import EngineFailed, SlipstreamError
from contracts.usage import Usage
from engines.drivers.error_bodies import engine_error
from engines.http.event_splitter import EventSplitter
from engines.http.repeated_event import CountedEvent, CountedRun, RepeatedEvent
from gateway.wire.chunk import (
    BROKEN_OFF,
    LESSONS,
    CallChunk,
    EventChoice,
    FunctionChunk,
    ReadError,
    UnreadableEvent,
    created_of,
    decode_event,
    decoded,
    error_in,
    finish_of,
    has_text,
    only_text,
    repeated,
    require_asked,
    text_of,
    texts_of,
    with_one_thought,
)
from gateway.wire.format import Transcoder
from gateway.wire.openai.tool_calls import NO_ARGUMENTS, Calls, made_id, openai_reason
from gateway.wire.usage_json import usage_json
from gateway.wire.usage_tracker import UsageTracker

PRIVATE_FIELDS = frozenset({"matched_stop", "metrics", "prompt_text", "prompt_token_ids", "stop_reason", "token_ids"})
"""SGLang's and vLLM's own fields of events and choices, which are not part of an OpenAI answer."""
_IN_PLACE = (
    (b',"matched_stop":null', b""),
    (b',"stop_reason":null,"prompt_token_ids":null', b""),
    (b',"token_ids":null', b""),
)
"""Such fields, as engines write them in events that finish nothing. No text contains them: its quotes are escaped."""
_THEIR_THOUGHT, _OUR_THOUGHT = b'"reasoning":', b'"reasoning_content":'
"""The member that holds the model's reasoning, as vLLM names it and as clients read it."""


_RUNNING_USAGE = re.compile(rb',"usage":(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')


class Relay(Transcoder):
    """State of one attempt's stream.

    `feed` returns the bytes that may be sent at once. From the event that finishes the last choice on, events are kept
    in `final` instead, and sent only after the attempt is closed.
    """

    text = None
    """Not kept: the text is sent on undecoded."""
    __slots__ = (
        "_calls",
        "_choices",
        "_compact",
        "_finished_choices",
        "_forced_call",
        "_id",
        "_ids",
        "_include_usage",
        "_lessons",
        "_model",
        "_models",
        "_object",
        "_ours",
        "_read_error",
        "_running",
        "_running_usage",
        "_service_tier",
        "_splitter",
        "_usage",
        "characters",
        "created",
        "error",
        "events",
        "final",
        "finished",
        "satisfied",
        "text_seen",
    )

    def __init__(
        self,
        response_id: str,
        model: str,
        choices: int,
        include_usage: bool,
        *,
        seen: UsageTracker | None = None,
        read_error: ReadError = engine_error,
        counts_characters: bool = False,
        chat: bool = True,
        service_tier: str | None = None,
        running_usage: bool = False,
        forced_call: bool = False,
    ) -> None:
        """seen: collects usage; None to create one. read_error: the dialect's `Driver.error`. counts_characters:
        requires reading the text of every event. chat: the default until the engine's first event. service_tier: named
        in every event; None to name none. running_usage: every event carries the usage so far. forced_call: see
        `openai_reason`."""
        self._id = response_id
        self._model = model
        self._service_tier = service_tier
        self._ids = (b"", b'"id":' + msgspec.json.encode(response_id))
        if service_tier is not None:
            self._ids = (b"", self._ids[1] + b',"service_tier":' + msgspec.json.encode(service_tier))
        self._models = (b"", b'"model":' + msgspec.json.encode(model))
        self._choices = choices
        self._calls: dict[int, Calls] = {}
        """Tool calls by choice, for choices that have made some or have ended."""
        self._compact = False
        """Whether events may be rewritten in place: their layout is the expected one, and the response continues."""
        self._ours: RepeatedEvent
        """The usual event as it is sent, if the engine's is known."""
        self._lessons = LESSONS
        """How many usual events may still be learned."""
        self._finished_choices: set[int] = set()
        self.finished: bool = False  # no property, because each token reads it
        self._forced_call = forced_call
        self._include_usage = include_usage
        self._running_usage = running_usage
        self._object = "chat.completion.chunk" if chat else "text_completion"
        self._splitter = EventSplitter()
        self._usage = seen or UsageTracker(choices)
        self._read_error = read_error
        self._running: bytes | None = None
        """The running usage of the event that was rewritten last."""
        self.characters: int | None = 0 if counts_characters else None
        self.created = 0
        self.events = 0
        self.text_seen = False
        self.final: list[bytes] = []
        self.satisfied: bool = False
        """Whether the response was cut; otherwise, the client gets all of the engine's output."""
        self.error: SlipstreamError | None = None

    @property
    def usage(self) -> Usage | None:
        """The engine's reported usage so far, for all choices; None before a report."""
        return self._usage.total

    def cut(self) -> None:
        if self.finished:
            return
        self.satisfied = True
        self._splitter.repeated = None
        text: dict[str, Any] = {"delta": {}} if self._object == "chat.completion.chunk" else {"text": ""}
        rest = set(range(self._choices)) - self._finished_choices
        choices = [{"index": index, **text, "finish_reason": "stop"} for index in sorted(rest)]
        chunk = {"object": self._object, "created": self.created, "choices": choices}
        self.final = [self._rewritten(chunk)]

    def feed(self, data: bytes) -> bytes:
        """Raises UnreadableEvent."""
        out = []
        try:
            for payload in self._splitter.runs(data):
                if isinstance(payload, list):
                    self._usage.texts(payload)
                    out.append(self._repeated(payload))
                elif isinstance(payload, CountedRun):
                    self._usage.counted(payload.usages)
                    out.append(self._repeated(payload.texts))
                elif event := self._event(payload):
                    out.append(event)
        except EngineFailed as failure:
            raise UnreadableEvent(failure, b"".join(out)) from None
        return out[0] if len(out) == 1 else b"".join(out)

    def finish(self) -> bytes:
        """The end of a complete stream: the held finish events, usage if the client requested it, and [DONE]."""
        events = list(self.final)
        usage = self.usage or (Usage() if self.satisfied else None)
        if self._include_usage and usage is not None:
            events.append(_frame(_usage_event(self._ids[1], self._object, self.created, self._models[1], usage)))
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def _event(self, payload: bytes) -> bytes:
        if payload == b"[DONE]":
            return b""
        if self.satisfied:
            self._usage.chunk(decoded(payload))
            return b""
        if not self._compact:
            return self._unusual(payload)
        try:
            event = decode_event(payload)
            if not payload.isascii():
                payload.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._unusual(payload)
        choices = event.choices
        rewritten = None if event.error else self._rewrite(payload, choices)
        if rewritten is None:
            return self._unusual(payload)
        self.events += 1
        self._usage.passed(payload, self._running)
        if not self.text_seen:
            self.text_seen = bool(text_of(choices[0]))
        if self._lessons:
            self._learn_repeated(payload, rewritten, choices[0])
        return b"".join((b"data: ", rewritten, b"\n\n"))

    def _repeated(self, texts: list[bytes]) -> bytes:
        """Rewrite usual events by their texts."""
        self.events += len(texts)
        if self.characters is not None:
            self.characters += len(msgspec.json.decode(b'"%b"' % b"".join(texts), type=str))
        return self._ours.written(texts)

    def _learn_repeated(self, payload: bytes, rewritten: bytes, choice: EventChoice) -> None:
        """From now on, recognize events that differ from this one only in their text and in the running usage."""
        if (member := only_text(choice)) is None or (self._running is not None and self._running_usage):
            return
        theirs, ours = repeated(payload, *member), repeated(rewritten, *member)
        if theirs is None or ours is None:
            return
        self._lessons -= 1
        self._ours = ours
        self._splitter.repeated = theirs if self._running is None else CountedEvent.after(theirs, self._running)

    def _rewrite(self, payload: bytes, choices: list[EventChoice]) -> bytes | None:
        """Rewrite in place: our id, our model, no running usage. None if the layout is not the expected one, or the
        choice finishes."""
        if (
            len(choices) != 1
            or choices[0].finish_reason is not None
            or choices[0].index
            or not payload.endswith(b"}")
            or b"\n" in payload  # each line of an event needs its own `data:`
            or (self._service_tier is not None and b'"service_tier":' in payload)
        ):
            return None
        delta = choices[0].delta
        if delta is None and choices[0].text is None:
            return None
        if delta is not None and delta.reasoning is not msgspec.UNSET:
            if _OUR_THOUGHT in payload or payload.count(_THEIR_THOUGHT) != 1:
                return None
            payload = payload.replace(_THEIR_THOUGHT, _OUR_THOUGHT)
        self._running = None
        theirs, ours = self._ids
        replaced = payload.replace(theirs, ours, 1)
        # an id that was not replaced means different spacing
        if theirs != ours and replaced == payload:
            return None
        for theirs, ours in _IN_PLACE:
            replaced = replaced.replace(theirs, ours)
        theirs, ours = self._models
        if theirs != ours:
            before, replaced = replaced, replaced.replace(theirs, ours, 1)
            if before == replaced:
                return None
        if (start := replaced.rfind(b',"usage":')) >= 0:
            if replaced.startswith(b"null", start + 9):
                if not self._include_usage:
                    replaced = replaced[:start] + replaced[start + 13 :]
            else:
                found = _RUNNING_USAGE.match(replaced, start)
                if found is None:
                    return None
                self._running = found.group(1)
                instead = b',"usage":null' if self._include_usage else b""
                if self._running_usage:
                    instead = found.group()
                replaced = replaced[:start] + instead + replaced[found.end() :]
        elif b'"usage"' in replaced:
            return None
        elif self._include_usage:
            replaced = replaced[:-1] + b',"usage":null}'
        if delta is not None and delta.tool_calls and not self._in_order(delta.tool_calls):
            return None
        if self.characters is not None:
            self.characters += len(text_of(choices[0]))
        return replaced

    def _in_order(self, chunks: list[CallChunk]) -> bool:
        """Count an event's only chunk of a call if its number is ours, and if the call's first chunk has an id and a
        type, and no later one an id or a name. Returns False if the event must be rewritten."""
        chunk, calls = chunks[0], self._calls_of(0)
        function = chunk.function or FunctionChunk()
        number = calls.number(chunk.index, chunk.id, function.name, function.arguments)
        if len(chunks) > 1 or chunk.index != number:
            return False
        begins = number == len(calls.begun)
        if not (chunk.id and chunk.type) if begins else chunk.id or function.name:
            return False
        calls.add(chunk.index, chunk.id, function.name, function.arguments)
        return True

    def _calls_of(self, index: int) -> Calls:
        calls = self._calls.get(index)
        if calls is None:
            calls = self._calls[index] = Calls(forced=self._forced_call)
        return calls

    def _unusual(self, payload: bytes) -> bytes:
        """Decode an event: the first, finishing, usage-only, error and oddly written ones."""
        chunk = decoded(payload)
        error = error_in(chunk, self._read_error)
        if error is not None:
            self.error = error
            return b""
        require_asked(chunk, self._choices)
        if not self.created and not self.final:
            self._learn(chunk, payload)
        self.events += 1
        self._usage.chunk(chunk)
        choices, ended = chunk.get("choices") or [], self._finished_choices
        if ended:  # entries after a choice's end are dropped
            choices = chunk["choices"] = [choice for choice in choices if int(choice.get("index") or 0) not in ended]
        self.text_seen = self.text_seen or has_text(chunk)
        if self.characters is not None:
            self.characters += sum(len(text) for index, text in texts_of(chunk) if index == 0)
        broken_off = False
        for position, choice in enumerate(choices):
            reason = choice.get("finish_reason")
            broken_off = broken_off or reason in BROKEN_OFF
            if reason or (choice.get("delta") or choice).get("tool_calls"):
                choices[position] = self._normalized(choice)
        # drop a usage event, because `finish` writes ours, and the last event of an incomplete choice, which an error
        # follows
        if not choices or broken_off:
            return b""
        event = self._rewritten(chunk)
        if self.finished:
            self._compact = False
            self._splitter.repeated = None
            self.final.append(event)
            return b""
        return event

    def _normalized(self, choice: dict[str, Any]) -> dict[str, Any]:
        """An event's choice with our numbers of calls, each with one id and one name, because clients append repeated
        ones; at its end, with OpenAI's finish reason and arguments for every call."""
        index, delta, reason = int(choice.get("index") or 0), choice.get("delta") or {}, finish_of(choice)
        calls = self._calls_of(index)
        chunks = []
        for chunk in delta.get("tool_calls") or ():
            chunks.append(self._numbered(chunk, calls, index))
        if reason is not None:
            self._finished_choices.add(index)
            self.finished = len(self._finished_choices) >= self._choices
            reason = openai_reason(reason, calls=bool(calls.begun), forced=self._forced_call)
            choice = {**choice, "finish_reason": reason}
            chunks += [
                {"index": number, "function": {"arguments": NO_ARGUMENTS}} for number in calls.without_arguments(reason)
            ]
        return {**choice, "delta": {**delta, "tool_calls": chunks}} if chunks else choice

    def _numbered(self, chunk: dict[str, Any], calls: Calls, choice: int) -> dict[str, Any]:
        """A chunk of a call as clients read it."""
        function = chunk.get("function") or {}
        id_, name, arguments = chunk.get("id"), function.get("name"), function.get("arguments")
        number = calls.number(chunk.get("index"), id_, name, arguments)
        begun = calls.begun[number] if number < len(calls.begun) else None
        numbered = {**chunk, "index": number}
        if begun is None:
            numbered |= {"id": id_ or made_id(self._id, choice, number), "type": "function"}
        else:
            numbered.pop("id", None)
            if begun.name and name:
                numbered["function"] = {"arguments": arguments or ""}
        calls.add(chunk.get("index"), id_, name, arguments)
        return numbered

    def _rewritten(self, chunk: dict[str, Any]) -> bytes:
        if not chunk.get("object"):
            chunk = {**chunk, "object": self._object, "created": self.created}
        if self._service_tier is not None:
            chunk = {**chunk, "service_tier": self._service_tier}
        running = self.usage if self._running_usage else None
        return _frame(rewrite_decoded(chunk, self._id, self._model, self._include_usage, running))

    def _learn(self, chunk: dict[str, Any], payload: bytes) -> None:
        """Learn how this engine writes its id and model, from the first event with a time: Azure's first event has
        none of these."""
        # with several choices usage must be kept by choice, and engines may give each its own id
        self._compact = self._choices == 1 and b'"choices":[' in payload
        self._object = str(chunk.get("object") or self._object)
        self.created = created_of(chunk)
        self._ids = (b'"id":' + msgspec.json.encode(str(chunk.get("id"))), self._ids[1])
        self._models = (b'"model":' + msgspec.json.encode(str(chunk.get("model"))), self._models[1])


def rewrite_decoded(
    chunk: dict[str, Any], response_id: str, model: str, include_usage: bool, running: Usage | None = None
) -> bytes:
    """One event with our id and model and without running usage: the definition of the in-place rewrite. running: the
    usage so far, for clients that requested it."""
    chunk = {**_public(chunk), "id": response_id, "model": model}
    chunk.pop("usage", None)
    chunk["choices"] = [_public(choice) for choice in chunk["choices"]]
    for choice in chunk["choices"]:
        if choice.get("delta") is None and choice.get("text") is None:  # Azure's notes of its filters have neither
            if chunk.get("object") == "text_completion":
                choice["text"] = ""
            else:
                choice["delta"] = {}
        if "reasoning" in (choice.get("delta") or ()):
            choice["delta"] = with_one_thought(choice["delta"])
        if choice.get("finish_reason") == "":
            choice["finish_reason"] = None
    if include_usage:
        chunk["usage"] = None if running is None else usage_json(running)
    return msgspec.json.encode(chunk)


def _public(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in PRIVATE_FIELDS}


def _usage_event(head: bytes, kind: str, created: int, model: bytes, usage: Usage) -> bytes:
    """The event with the total usage. head, model: the members `id` and `model`, as every event has them."""
    members = msgspec.json.encode({"object": kind, "created": created})[1:-1]
    return (
        b"{"
        + head
        + b","
        + members
        + b","
        + model
        + b',"choices":[],"usage":'
        + msgspec.json.encode(usage_json(usage))
        + b"}"
    )


def _frame(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"
