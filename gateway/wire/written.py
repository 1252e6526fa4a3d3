"""Reads a model's text from a completion's events and writes it as such events again, for responses made from another
request's generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contracts.errors import EngineFailed
from engines.http.event_splitter import EventSplitter
from gateway.wire.chunk import BROKEN_OFF

NOTHING_USED = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
ANSWER_ID = "cmpl-shared"
"""Clients never see this id: the formats replace it."""


Token = tuple[str, float | None]
"""A token's text, and the natural logarithm of its probability."""


class _Logprobs(msgspec.Struct):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    created: int = 0


_decode = msgspec.json.Decoder(_Event).decode


class Written:
    """A completion of one choice, as far as its events have arrived, without cuts or replacements."""

    __slots__ = ("_splitter", "created", "finish_reason", "text", "tokens")

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self.text = ""
        self.tokens: list[Token] = []
        """Empty if log probabilities were not requested."""
        self.finish_reason: str | None = None
        self.created = 0
        """Unix time in seconds; 0 if the engine sent none."""

    def feed(self, data: bytes) -> None:
        """Take the engine's bytes. Raises EngineFailed for invalid bytes and for an aborted answer. Error events have
        no text."""
        for payload in self._splitter.feed(data):
            if payload == b"[DONE]":
                continue
            try:
                event = _decode(payload)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise EngineFailed("The engine sent an event that does not belong to a completion.") from None
            self.created = self.created or event.created
            for choice in event.choices if self.finish_reason is None else ():
                self.text += choice.text or ""
                if (logprobs := choice.logprobs) is not None:
                    self.tokens += zip(logprobs.tokens or (), logprobs.token_logprobs or (), strict=False)
                if choice.finish_reason in BROKEN_OFF:
                    raise EngineFailed("The engine ended its answer early.")
                self.finish_reason = self.finish_reason or choice.finish_reason


def text_event(text: str, created: int, model: str, tokens: Sequence[Token] = ()) -> bytes:
    """An event with a chunk of text. tokens: the tokens of this text."""
    logprobs = None
    if tokens:
        logprobs = {"tokens": [token for token, _ in tokens], "token_logprobs": [value for _, value in tokens]}
    return _event(text, None, created, model, logprobs)


def last_event(finish_reason: str, created: int, model: str) -> bytes:
    """The event that ends the completion, with a usage of zero."""
    return _event("", finish_reason, created, model, None, usage=NOTHING_USED)


def _event(text: str, finish_reason: str | None, created: int, model: str, logprobs: Any, **more: Any) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
    chunk = {"id": ANSWER_ID, "object": "text_completion", "created": created, "model": model, "choices": [choice]}
    return b"data: " + msgspec.json.encode({**chunk, **more}) + b"\n\n"
