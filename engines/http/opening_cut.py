"""Cuts the opening off a response of an engine that returns the text with which its output had to begin."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import EngineFailed
from engines.http.event_splitter import EventSplitter

PER_TOKEN = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
"""Members of a completion's log probabilities with an entry for each token."""
PARTIAL = "\ufffd"
"""In a text, an incomplete character; in a token's name, one or more bytes of a character."""


class OpeningCut:
    """Removes the opening from the start of each choice of one response. All events stay, with their usage.

    Log probabilities then begin with the token in which the opening ends. A choice that ends within the opening has no
    text. A token's name that has parts of characters does not show how many: in an event with such parts, a short
    token's log probability may be missing.
    """

    def __init__(self, opening: str) -> None:
        """opening: must not be empty."""
        self._opening = opening
        self._splitter = EventSplitter()
        self._left: dict[int, str] = {}
        """The part of the opening that each choice has yet to write."""
        self._named: dict[int, int] = {}
        """Number of the opening's characters that each choice's tokens have named."""

    def feed(self, data: bytes) -> bytes:
        """The events completed by `data`. Raises EngineFailed if a choice does not begin with the opening."""
        return b"".join([self._event(payload) for payload in self._splitter.feed(data)])

    def _event(self, payload: bytes) -> bytes:
        try:
            event = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            event = None  # `[DONE]`, or an event that the reader will refuse
        choices = event.get("choices") if isinstance(event, dict) else None
        if not isinstance(choices, list):
            choices = []
        shortened = [self._shortened(choice) for choice in choices if isinstance(choice, dict)]
        if any(shortened):
            payload = msgspec.json.encode(event)
        return b"data: " + payload.replace(b"\n", b"\ndata: ") + b"\n\n"

    def _shortened(self, choice: dict[str, Any]) -> bool:
        """Cut one choice's part of an event; True if anything was cut."""
        text, logprobs, index = choice.get("text"), choice.get("logprobs"), choice.get("index")
        index = index if isinstance(index, int) else 0
        moved = isinstance(logprobs, dict) and self._moved(logprobs)
        if not (left := self._left.get(index, self._opening)):
            return moved
        rest = ""
        if isinstance(text, str):
            rest = choice["text"] = self._rest(text, left, index, ended=bool(choice.get("finish_reason")))
        shortened = moved or rest != (text or "")
        if isinstance(logprobs, dict) and isinstance(logprobs.get("tokens"), list):
            tokens = logprobs["tokens"]
            if within := self._within([str(token) for token in tokens], index, len(rest)):
                for name in PER_TOKEN:
                    if isinstance(logprobs.get(name), list) and len(logprobs[name]) == len(tokens):
                        logprobs[name] = logprobs[name][within:]
                shortened = True
        return shortened

    def _moved(self, logprobs: dict[str, Any]) -> bool:
        """Count vLLM's text offsets from the opening's end; SGLang sends -1 instead. True if any offset changed."""
        offsets, size = logprobs.get("text_offset"), len(self._opening)
        if not isinstance(offsets, list):
            return False
        moved = [max(offset - size, 0) if isinstance(offset, int) and offset > 0 else offset for offset in offsets]
        logprobs["text_offset"] = moved
        return moved != offsets

    def _rest(self, text: str, left: str, index: int, *, ended: bool) -> str:
        if ended and len(text) <= len(left):
            text = text.rstrip(PARTIAL)
        if text[: len(left)] != left[: len(text)]:
            raise EngineFailed(
                "The engine's output does not begin with the text that it was given.",
                detail="healing needs structured outputs; else set models[].fim.healing = false",
            )
        self._left[index] = "" if ended else left[len(text) :]
        return text[len(left) :]

    def _within(self, tokens: list[str], index: int, beyond: int) -> int:
        """Number of tokens at the start that name nothing beyond the opening. beyond: number of characters after the
        opening in the event's text, which no earlier event's tokens spell."""
        named, within, whole = self._named.get(index, 0), 0, len(self._opening)
        for token in tokens:
            size = 0 if token.startswith("bytes:") else len(token.replace(PARTIAL, ""))
            if named == whole or named + size > whole:
                named = whole
                break
            named += size
            within += 1
        self._named[index] = named
        # above, a part of a character counts as none; here, as one
        characters = sum(map(_most_characters, tokens[within:]))
        while within and characters < beyond:
            within -= 1
            characters += _most_characters(tokens[within])
        return within


def _most_characters(token: str) -> int:
    return 1 if token.startswith("bytes:") else len(token)
