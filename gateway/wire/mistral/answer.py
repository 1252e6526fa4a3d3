"""A filled gap in Mistral's form: a chat message, whole or in deltas, although the request is not a chat."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from contracts.usage import Usage
from gateway.wire.fill.transcoder import Answer
from gateway.wire.mistral.schema import FimChoice, FimCompletion, FimMessage, FimUsage


class FimFraming:
    """Framing of one request."""

    def __init__(self, answer_id: str, model: str, created: int) -> None:
        """created: Unix time in seconds."""
        self._id = answer_id
        self._model = model
        self._created = created
        self._begun = False

    def frame(self, text: str) -> bytes:
        return self._event({"content": text}, None)

    def last(self, answer: Answer) -> bytes:
        """The finish reason and the usage are in the same event."""
        event = self._event({"content": ""}, answer.finish_reason, _usage(answer.usage))
        return event + b"data: [DONE]\n\n"

    def whole(self, answer: Answer) -> bytes:
        reason: Literal["stop", "length"] = "length" if answer.finish_reason == "length" else "stop"
        choice = FimChoice(0, FimMessage(answer.text), reason)
        return msgspec.json.encode(
            FimCompletion(self._id, "chat.completion", self._created, self._model, [choice], _usage(answer.usage))
        )

    def _event(self, delta: dict[str, Any], finish_reason: str | None, usage: FimUsage | None = None) -> bytes:
        if not self._begun:
            delta = {"role": "assistant", **delta}
            self._begun = True
        chunk = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
            **({} if usage is None else {"usage": usage}),
        }
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _usage(usage: Usage) -> FimUsage:
    return FimUsage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
