"""A gap's answer in the form of OpenAI's completions, which Tabby's clients also read."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.wire.fill.transcoder import Answer
from gateway.wire.usage_json import usage_json


def completion_head(answer_id: str, model: str, created: int) -> dict[str, Any]:
    """The first fields of every event and every whole response. created: Unix time in seconds."""
    return {"id": answer_id, "object": "text_completion", "created": created, "model": model}


def completion_choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    """The answer's only choice."""
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


def whole_completion(head: dict[str, Any], answer: Answer, **more: Any) -> bytes:
    """The body of an unstreamed response. more: other fields of the API."""
    choices = [completion_choice(answer.text, answer.finish_reason)]
    return msgspec.json.encode({**head, "choices": choices, "usage": usage_json(answer.usage), **more})
