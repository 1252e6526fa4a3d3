"""Masks possible control tokens in user text while a chat template is rendered.

A mark, which no user text contains and which the template passes through, replaces each risky part. After rendering,
all remaining control strings are the template's own, and the marks are turned back into the user's characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from contracts.errors import InvalidField
from engines.tokenizer.control import ControlTokens
from engines.tokenizer.json_value import texts
from engines.tokenizer.sound import require_sound

JsonObject = dict[str, Any]
OPEN, CLOSE, ZERO = "\udc00", "\udc01", 0xDC10
"""Halves of surrogate pairs: Python's strings can contain them but no valid text does, so no part of a mark can be the
user's. The index of the part is between the first two, in digits that are ten further halves from ZERO."""
_DIGITS = {ord(str(digit)): ZERO + digit for digit in range(10)}
_NUMBERS = {ZERO + digit: str(digit) for digit in range(10)}
_MARK = re.compile(f"{OPEN}([{chr(ZERO)}-{chr(ZERO + 9)}]+){CLOSE}")


class Escape:
    """The messages and tools of one request, with risky parts replaced after `replace`."""

    def __init__(
        self, control: ControlTokens, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None
    ) -> None:
        self._control = control
        self._pieces: list[str] = []
        written = texts((messages, tools))
        self.needed = control.possible(written) and any(map(control.risky, written))
        """Whether anything must be replaced."""
        self._written = written
        self.messages: Sequence[JsonObject] = messages
        """The originals until `replace`."""
        self.tools: Sequence[JsonObject] | None = tools

    def replace(self) -> None:
        """Replace the risky parts. Raises InvalidField if a text itself has half of a surrogate pair."""
        for text in self._written:
            require_sound(text)
        self.messages = self._walk(self.messages)
        self.tools = self._walk(self.tools)

    def restore(self, text: str) -> str:
        """Turn marks back into the user's characters. Raises InvalidField if the template split a mark."""
        if not self._pieces:
            return text
        restored = _MARK.sub(lambda mark: self._pieces[int(mark[1].translate(_NUMBERS))], text)
        try:
            require_sound(restored)
        except InvalidField:
            raise InvalidField(
                "A message holds one of this model's control strings where the model's chat template splits "
                "texts; remove it or break it up.",
                param="messages",
            ) from None
        return restored

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
            parts.append(f"{OPEN}{str(len(self._pieces)).translate(_DIGITS)}{CLOSE}")
            self._pieces.append(text[start:end])
            position = end
        parts.append(text[position:])
        return "".join(parts)
