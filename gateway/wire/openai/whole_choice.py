"""One choice of a whole answer while it grows, in about as many bytes as it will have on the wire.

A token with 20 alternatives is 9 kB as Python's objects and a tenth of that as JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import EngineFailed
from gateway.wire.chunk import TEXTS, finish_of, with_one_thought
from gateway.wire.openai.schema import MAX_CALLS


class JsonArray:
    """A JSON array made of the items of many, kept as bytes."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items = bytearray()

    def extend(self, items: list[Any]) -> None:
        """Add items at the end."""
        if items:
            self._items += b"," if self._items else b""
            self._items += msgspec.json.encode(items)[1:-1]

    def raw(self) -> msgspec.Raw:
        return msgspec.Raw(b"".join((b"[", self._items, b"]")))


class WholeChoice:
    """Folds a choice's events. Texts are UTF-8 until they are whole: adding to a string copies it."""

    __slots__ = ("_by_index", "_calls", "_chat", "_index", "_logprobs", "_texts", "finish_reason")

    def __init__(self, index: int, *, chat: bool) -> None:
        self._index = index
        self._chat = chat
        self._texts: dict[str, bytearray] = {}
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        """The call that a piece with this index belongs to."""
        self._logprobs: dict[str, JsonArray | None] | None = None
        self.finish_reason: str | None = None

    @property
    def has_logprobs(self) -> bool:
        """Some event had log probabilities."""
        return self._logprobs is not None

    @property
    def characters(self) -> int:
        """Of `text`; a code point is one."""
        return len(self.text)

    @property
    def text(self) -> str:
        """Its text, or the message's content."""
        return self._texts.get("content" if self._chat else "text", b"").decode()

    def add(self, part: dict[str, Any]) -> None:
        """An event's entry for this choice."""
        if self._chat:
            delta = with_one_thought(part.get("delta") or {})
            for name in TEXTS:
                if delta.get(name) is not None:
                    self._text(name, delta[name])
            for call in delta.get("tool_calls") or ():
                self._add_call(call)
        else:
            self._text("text", part.get("text") or "")
        if part.get("logprobs"):
            self._add_logprobs(part["logprobs"])
        self.finish_reason = finish_of(part) or self.finish_reason

    def end(self) -> None:
        """What has come is all of it."""
        self.finish_reason = self.finish_reason or "stop"

    def json(self) -> dict[str, Any]:
        """The choice as OpenAI's object; long arrays in it are `msgspec.Raw`."""
        texts: dict[str, Any] = {name: text.decode() for name, text in self._texts.items()}
        if self._chat:
            calls = {"tool_calls": [call.json() for call in self._calls]} if self._calls else {}
            if calls and not texts.get("content"):
                texts["content"] = None
            content: dict[str, Any] = {"message": {"role": "assistant", "content": None, **texts, **calls}}
        else:
            content = {"text": "", **texts}
        logprobs = None
        if self._logprobs is not None:
            logprobs = {name: array and array.raw() for name, array in self._logprobs.items()}
        return {"index": self._index, **content, "logprobs": logprobs, "finish_reason": self.finish_reason}

    def _text(self, name: str, more: object) -> None:
        if not isinstance(more, str):
            raise EngineFailed("The engine sent something else than text where text belongs.")
        self._texts.setdefault(name, bytearray()).extend(more.encode())

    def _add_call(self, part: dict[str, Any]) -> None:
        """A piece of a call. Engines number calls with gaps, or give several the same index: another id, or a second
        name, begins a call."""
        index = int(part.get("index") or 0)
        call = self._by_index.get(index)
        if call is None or call.ended_by(part):
            if not 0 <= index < MAX_CALLS or len(self._calls) == MAX_CALLS:  # the engine's word could fill the memory
                raise EngineFailed("The engine sent more tool calls than an answer may hold.")
            call = self._by_index[index] = _Call()
            self._calls.append(call)
        call.add(part)

    def _add_logprobs(self, more: dict[str, Any]) -> None:
        if self._logprobs is None:
            self._logprobs = {"content": None, "refusal": None} if self._chat else {}
        for name, items in more.items():
            array = self._logprobs.setdefault(name, None)
            if items is None:
                continue
            if array is None:
                array = self._logprobs[name] = JsonArray()
            array.extend(items)


class _Call:
    """A tool call whose arguments come in pieces."""

    __slots__ = ("_arguments", "_id", "_name")

    def __init__(self) -> None:
        self._id = ""
        self._name = ""
        self._arguments = bytearray()

    def ended_by(self, part: dict[str, Any]) -> bool:
        """Whether a piece under this call's index begins another call."""
        id_, name = part.get("id"), (part.get("function") or {}).get("name")
        if id_ and self._id:
            return bool(id_ != self._id)
        return bool(name and self._name)

    def add(self, part: dict[str, Any]) -> None:
        function = part.get("function") or {}
        self._id = part.get("id") or self._id
        self._name = function.get("name") or self._name
        self._arguments += (function.get("arguments") or "").encode()

    def json(self) -> dict[str, Any]:
        function = {"name": self._name, "arguments": self._arguments.decode()}
        return {"id": self._id, "type": "function", "function": function}
