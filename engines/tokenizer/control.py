"""Finds the strings in a text that act as control tokens in a model's input."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

SEARCHED_CHARACTERS = 65_536
"""Characters searched at a time, because `re` holds the interpreter lock for a whole search."""
_SPACES = re.compile(r"\s*")


class ControlToken(msgspec.Struct, frozen=True):
    """A token whose text steers the model if it is parsed as the token."""

    id: int
    text: str
    lstrip: bool
    rstrip: bool
    """The token swallows the whitespace to its right."""


class ControlTokens:
    """All control tokens of one tokenizer.

    Every token that is marked special is one. So is an unmarked token that looks like a marker: Qwen2.5-Coder's
    `<|fim_prefix|>` is not marked. Added tokens that are plain text, such as runs of spaces, are not control tokens.
    """

    def __init__(self, added_tokens: Iterable[dict[str, Any]]) -> None:
        tokens = [
            ControlToken(token["id"], token["content"], bool(token.get("lstrip")), bool(token.get("rstrip")))
            for token in added_tokens
            if is_control(token)
        ]
        self.by_text = {token.text: token for token in tokens}
        self.ids = frozenset(token.id for token in tokens)
        texts = list(self.by_text)
        self._pattern = re.compile(_any_of(texts) if texts else r"(?!)")
        self._heads = {text[:end] for text in texts for end in range(1, len(text))}
        self._tails = {text[start:] for text in texts for start in range(1, len(text))}
        self._longest = max(map(len, texts), default=0)
        self._ends = sorted({text[at] for text in texts for at in (0, -1)})

    def find(self, text: str) -> str | None:
        """The first control string in the text, or None."""
        match = next(self._matches(text), None)
        return match[0] if match else None

    def possible(self, texts: Iterable[str]) -> bool:
        """Whether any of the texts has a character with which a control string begins or ends. If none has one, as in
        most requests, no text is `risky`, and none becomes so by joining them."""
        ends = self._ends
        for text in texts:
            for character in ends:
                if character in text:
                    return True
        return False

    def marks(self, text: str) -> int:
        """The number of characters with which a control string begins or ends."""
        return sum(map(text.count, self._ends))

    def risky(self, text: str) -> bool:
        """Whether the text contains a control string, or could form one together with adjacent text."""
        if not self.possible((text,)):
            return False
        return self.find(text) is not None or self._edge(text) > 0 or self._front(text) > 0

    def may_begin_in(self, text: str) -> bool:
        """Whether the text contains a control string, or the beginning of one at its end."""
        return self.find(text) is not None or self._edge(text) > 0

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of the parts that make a text `risky`, in order: whole control strings, and partial ones at
        either edge."""
        spans = [match.span() for match in self._matches(text)]
        front, edge = self._front(text), self._edge(text)
        if front and (not spans or spans[0][0] >= front):
            spans.insert(0, (0, front))
        if edge and (not spans or spans[-1][1] <= len(text) - edge):
            spans.append((len(text) - edge, len(text)))
        return spans

    def split(self, text: str) -> Iterator[str | ControlToken]:
        """The text cut at its control strings, as `tokenizers` does it."""
        position = 0
        for match in self._matches(text):
            if match.start() < position:
                continue
            token = self.by_text[match[0]]
            before = text[position : match.start()]
            yield before.rstrip() if token.lstrip else before
            yield token
            position = match.end()
            if token.rstrip and (spaces := _SPACES.match(text, position)) is not None:
                position = spaces.end()
        yield text[position:]

    def _matches(self, text: str) -> Iterator[re.Match[str]]:
        """The matches of `finditer`, searched one section at a time."""
        position = 0
        while position < len(text):
            # a match that begins in this section is found whole; one that begins after it belongs to the next section
            section_end = position + SEARCHED_CHARACTERS
            for match in self._pattern.finditer(text, position, section_end + self._longest):
                if match.start() >= section_end:
                    break
                yield match
                position = match.end()
            position = max(position, section_end)

    def _edge(self, text: str) -> int:
        """Length of the longest suffix of the text that begins a control string."""
        longest = min(len(text), self._longest - 1)
        return next((length for length in range(longest, 0, -1) if text[-length:] in self._heads), 0)

    def _front(self, text: str) -> int:
        """Length of the longest prefix of the text that ends a control string."""
        longest = min(len(text), self._longest - 1)
        return next((length for length in range(longest, 0, -1) if text[:length] in self._tails), 0)


def _any_of(texts: Sequence[str]) -> str:
    """A pattern for the longest of these texts at a position, in which texts share their common beginnings.

    `re` would try plain alternatives one after the other at every position that looks like a beginning: with the 6,000
    unused tokens of Gemma's vocabulary, 4 MB of `<` held the interpreter for minutes.
    """
    tails: dict[str, list[str]] = {}
    for text in texts:
        if text:
            tails.setdefault(text[0], []).append(text[1:])
    branches = [re.escape(head) + _any_of(rest) for head, rest in tails.items()]
    if not branches:
        return ""
    # greedy: `<|end_of_text|>` must win over `<|end`
    either = branches[0] if len(branches) == 1 and "" not in texts else f"(?:{'|'.join(branches)})"
    return either + "?" if "" in texts else either


def is_control(token: dict[str, Any]) -> bool:
    """Whether an entry of tokenizer.json's `added_tokens` steers the model."""
    text: str = token["content"]
    marker = len(text) > 2 and text.lstrip("▁")[:1] in ("<", "[") and text[-1:] in (">", "]")
    return bool(token.get("special")) or marker


CALL_MARKS = frozenset({"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"})
"""Control tokens of Mistral's models, without which a call cannot be distinguished from text."""


def gives_text(token: dict[str, Any]) -> bool:
    """Whether an entry of `added_tokens` counts as text when the model generates it.

    Plain text does. So do `CALL_MARKS`, and tags that are not marked special, such as `<tool_call>` and `<think>`,
    which the caller needs. Markers with bars, such as an unmarked `<|fim_pad|>`, never do.
    """
    text: str = token["content"]
    if text in CALL_MARKS:
        return True
    return not token.get("special") and not (is_control(token) and ("|" in text or "｜" in text))
