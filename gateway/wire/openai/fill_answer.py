"""A gap's answer in the form of OpenAI's completions, if the rules of editors' formats apply to it."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.wire.fill.completion import completion_choice, completion_head, whole_completion
from gateway.wire.fill.transcoder import Answer
from gateway.wire.usage_json import usage_json


class CompletionFraming:
    """Framing of one request."""

    def __init__(self, answer_id: str, model: str, created: int, *, include_usage: bool) -> None:
        """created: Unix time in seconds. include_usage: whether a stream ends with its usage."""
        self._head = completion_head(answer_id, model, created)
        self._include_usage = include_usage

    def frame(self, text: str) -> bytes:
        return self._event([completion_choice(text, None)])

    def last(self, answer: Answer) -> bytes:
        """The finish reason, the usage if it was requested, and `[DONE]`."""
        events = self._event([completion_choice("", answer.finish_reason)])
        if self._include_usage:
            events += self._event([], usage_json(answer.usage))
        return events + b"data: [DONE]\n\n"

    def whole(self, answer: Answer) -> bytes:
        return whole_completion(self._head, answer)

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        usage_field = {"usage": usage} if self._include_usage else {}
        return b"data: " + msgspec.json.encode({**self._head, "choices": choices, **usage_field}) + b"\n\n"
