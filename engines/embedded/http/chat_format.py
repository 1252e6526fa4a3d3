"""Formats chat.completion and its chunks, including tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engines.embedded.http.logprobs import chat_logprobs
from engines.embedded.http.wire import Format, encode, ending, finish_fields, logprobs_of, text_of
from engines.embedded.output import Delta, Finish
from engines.embedded.request import Request
from engines.embedded.tools.calls import CallArguments, CallParser, CallStart, Event, Text
from engines.embedded.tools.choice import ToolUse
from engines.tokenizer.tokenizer import Tokenizer


class ChatFormat(Format):
    """The responses to one chat request."""

    def __init__(self, request: Request, model: str, tokenizer: Tokenizer, use: ToolUse | None) -> None:
        """use: the tools that the output may call."""
        super().__init__(request, model, "chat.completion", "chat.completion.chunk")
        self._tokenizer = tokenizer
        self._reports = request.sampling.logprobs is not None
        self._started: set[int] = set()
        self._parsers: list[CallParser] = [use.parser() for _ in range(request.choices)] if use else []
        self._called: set[int] = set()

    def chunk(self, delta: Delta, usage: bytes) -> bytes:
        """The role first, then text and calls, then the finish in a separate chunk."""
        start = b'%b{"index":%d,"delta":{' % (self._head, delta.index)
        pieces: list[bytes] = []
        if delta.index not in self._started:
            self._started.add(delta.index)
            pieces.append(b'"role":"assistant","content":""},"logprobs":null,')
        logprobs = encode(chat_logprobs(delta.logprobs, self._tokenizer)) if delta.logprobs else b"null"
        events = self._events(delta.index, delta.text, delta.finish)
        if not events and (delta.logprobs or not (delta.text or delta.finish)):
            events = [Text("")]
        for event in events:
            pieces.append(b'%b},"logprobs":%b,' % (_piece(event), logprobs))
            logprobs = b"null"
        rest = b'"finish_reason":null,"matched_stop":null}],"usage":%b}\n\n' % usage
        data = b"".join(start + piece + rest for piece in pieces)
        if delta.finish is not None:
            data += b'%b},"logprobs":null,%b' % (start, ending(self._finish(delta.index, delta.finish), usage))
        return data

    def choices(self, choices: Sequence[Sequence[Delta]]) -> list[dict[str, Any]]:
        """One message per choice."""
        return [self._choice(index, deltas) for index, deltas in enumerate(choices)]

    def _choice(self, index: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        finish = deltas[-1].finish
        message = _message(self._events(index, text_of(deltas), finish))
        entries = logprobs_of(deltas)
        return {
            "index": index,
            "message": message,
            "logprobs": chat_logprobs(entries, self._tokenizer) if entries or self._reports else None,
            **finish_fields(self._finish(index, finish)),
        }

    def _events(self, index: int, text: str, finish: Finish | None) -> list[Event]:
        if not self._parsers:
            return [Text(text)] if text else []
        parser = self._parsers[index]
        events = parser.push(text)
        if finish is not None:
            events += parser.flush()
        if any(isinstance(event, CallStart) for event in events):
            self._called.add(index)
        return events

    def _finish(self, index: int, finish: Finish | None) -> Finish | None:
        if finish is not None and finish.reason == "stop" and index in self._called:
            return Finish("tool_calls")
        return finish


def _piece(event: Event) -> bytes:
    """The content of a delta."""
    match event:
        case Text(text):
            return b'"content":%b' % encode(text)
        case CallStart(index, id_, name):
            function = {"name": name, "arguments": ""}
            return b'"tool_calls":%b' % encode([{"index": index, "id": id_, "type": "function", "function": function}])
        case CallArguments(index, text):
            return b'"tool_calls":%b' % encode([{"index": index, "function": {"arguments": text}}])


def _message(events: Sequence[Event]) -> dict[str, Any]:
    text = "".join(event.text for event in events if isinstance(event, Text))
    calls: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, CallStart):
            calls.append({"id": event.id, "type": "function", "function": {"name": event.name, "arguments": ""}})
        elif isinstance(event, CallArguments):
            calls[event.index]["function"]["arguments"] += event.text
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text or None, "tool_calls": calls}
