"""Hides what looks like a control token in user text while a chat template is rendered.

Each risky piece is replaced by a mark that the template passes through and that no user text contains; after rendering,
every control string left is the template's own, and the marks are turned back into the user's characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engines.tokenizer.control import ControlTokens

JsonObject = dict[str, Any]
PRIVATE_USE = range(0xE000, 0xF8FF + 1)


class Escape:
    """The messages and tools of one request with risky pieces replaced."""

    def __init__(
        self, control: ControlTokens, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None
    ) -> None:
        self._control = control
        self._pieces: list[str] = []
        texts = list(_texts(messages))
        texts.extend(_texts(tools))
        self.needed = any(control.risky(text) for text in texts)
        """False: nothing was replaced, `messages` and `tools` are the originals."""
        self.messages: Sequence[JsonObject] = messages
        self.tools: Sequence[JsonObject] | None = tools
        if self.needed:
            used = set("".join(texts))
            self._mark = next(chr(code) for code in PRIVATE_USE if chr(code) not in used)
            self.messages = self._walk(messages)
            self.tools = self._walk(tools)

    def restore(self, text: str) -> str:
        """Turn marks back into the user's characters."""
        if not self._pieces:
            return text
        parts = text.split(self._mark)
        # marks come in pairs around a number: every second part is one
        parts[1::2] = [self._pieces[int(number)] for number in parts[1::2]]
        return "".join(parts)

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._escaped(value)
        if isinstance(value, dict):
            return {self._escaped(key): self._walk(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(inner) for inner in value]
        return value

    def _escaped(self, text: str) -> str:
        if not self._control.risky(text):
            return text
        parts = []
        position = 0
        for start, end in self._control.spans(text):
            parts.append(text[position:start])
            parts.append(f"{self._mark}{len(self._pieces)}{self._mark}")
            self._pieces.append(text[start:end])
            position = end
        parts.append(text[position:])
        return "".join(parts)


def _texts(value: Any) -> Iterator[str]:
    """Every string a user wrote, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
