"""One choice of a whole response while it grows, in about as many bytes as on the wire.

A token with 20 alternatives takes 9 kB as Python objects and a tenth of that as JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import EngineFailed
from gateway.wire.chunk import TEXTS, finish_of, with_one_thought
from gateway.wire.openai.tool_calls import NO_ARGUMENTS, Calls, made_id, openai_reason


class JsonArray:
    """A JSON array of the items of several arrays, kept as bytes."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items = bytearray()

    def extend(self, items: list[Any]) -> None:
        """Append items."""
        if items:
            self._items += b"," if self._items else b""
            self._items += msgspec.json.encode(items)[1:-1]

    def raw(self) -> msgspec.Raw:
        return msgspec.Raw(b"".join((b"[", self._items, b"]")))


class WholeChoice:
    """Combines a choice's events. Texts are UTF-8 until the end, because appending to a string copies it."""

    __slots__ = (
        "_arguments",
        "_calls",
        "_chat",
        "_forced_call",
        "_index",
        "_logprobs",
        "_response_id",
        "_texts",
        "finish_reason",
    )

    def __init__(self, index: int, response_id: str, *, chat: bool, forced_call: bool = False) -> None:
        """response_id: the response's. forced_call: see `openai_reason`."""
        self._index = index
        self._response_id = response_id
        self._forced_call = forced_call
        self._chat = chat
        self._texts: dict[str, bytearray] = {}
        self._calls = Calls(forced=forced_call)
        self._arguments: list[bytearray] = []
        """The arguments of each call, in UTF-8."""
        self._logprobs: dict[str, JsonArray | None] | None = None
        self.finish_reason: str | None = None
        """The engine's own finish reason."""

    @property
    def has_logprobs(self) -> bool:
        """Whether an event had log probabilities."""
        return self._logprobs is not None

    @property
    def characters(self) -> int:
        """Characters (code points) of `text`."""
        return len(self.text)

    @property
    def text(self) -> str:
        """The choice's text, or its message's content."""
        return self._texts.get("content" if self._chat else "text", b"").decode()

    def add(self, part: dict[str, Any]) -> None:
        """Add an event's entry for this choice. Entries after its end are dropped."""
        if self.finish_reason:
            return
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

    def extend(self, name: str, insides: list[bytes]) -> None:
        """Extend the text of this name. insides: the contents of JSON strings."""
        inside = b"".join(insides)
        if b"\\" in inside:
            inside = msgspec.json.decode(b'"%b"' % inside, type=str).encode()
        self._texts.setdefault(name, bytearray()).extend(inside)

    def end(self) -> None:
        self.finish_reason = self.finish_reason or "stop"

    def json(self) -> dict[str, Any]:
        """The choice as OpenAI's object; long arrays in it are `msgspec.Raw`."""
        texts: dict[str, Any] = {name: text.decode() for name, text in self._texts.items()}
        reason = self.finish_reason
        if reason:
            reason = openai_reason(reason, calls=bool(self._calls.begun), forced=self._forced_call)
        if self._chat:
            calls = self._made(reason)
            if calls and not texts.get("content"):
                texts["content"] = None
            content: dict[str, Any] = {"message": {"role": "assistant", "content": None, **texts, **calls}}
        else:
            content = {"text": "", **texts}
        logprobs = None
        if self._logprobs is not None:
            logprobs = {name: array and array.raw() for name, array in self._logprobs.items()}
        return {"index": self._index, **content, "logprobs": logprobs, "finish_reason": reason}

    def _text(self, name: str, more: object) -> None:
        if not isinstance(more, str):
            raise EngineFailed("The engine sent a value that is not text where text belongs.")
        self._texts.setdefault(name, bytearray()).extend(more.encode())

    def _add_call(self, part: dict[str, Any]) -> None:
        function = part.get("function") or {}
        arguments = function.get("arguments") or ""
        number = self._calls.add(part.get("index"), part.get("id"), function.get("name"), arguments)
        if number == len(self._arguments):
            self._arguments.append(bytearray())
        self._arguments[number] += arguments.encode()

    def _made(self, reason: str | None) -> dict[str, Any]:
        """The message's `tool_calls`; empty if there are none."""
        for number in self._calls.without_arguments(reason):
            self._arguments[number] += NO_ARGUMENTS.encode()
        calls = [
            {
                "id": call.id or made_id(self._response_id, self._index, number),
                "type": "function",
                "function": {"name": call.name, "arguments": arguments.decode()},
            }
            for number, (call, arguments) in enumerate(zip(self._calls.begun, self._arguments, strict=True))
        ]
        return {"tool_calls": calls} if calls else {}

    def _add_logprobs(self, more: dict[str, Any]) -> None:
        if self._logprobs is None:
            self._logprobs = {"content": None, "refusal": None} if self._chat else {}
        for name, items in more.items():
            array = self._logprobs.setdefault(name, None)
            if items is None:
                continue
            if not isinstance(items, list):  # its JSON would be cut open, and the answer would not be JSON
                raise EngineFailed("The engine sent log probabilities that are not a list.")
            if array is None:
                array = self._logprobs[name] = JsonArray()
            array.extend(items)
