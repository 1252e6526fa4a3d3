"""Builds the request of an item in the API that customers use: a conversation, or a gap in a file."""

from __future__ import annotations

from typing import Any

from evals.slices.item import Question

CHAT, FILL = "/v1/chat/completions", "/v1/fim/completions"


def path_of(question: Question) -> str:
    """The API path of a question."""
    return CHAT if question.gap is None else FILL


def body_of(question: Question, model: str) -> dict[str, Any]:
    """The body that requests the greedy answer. For a gap, it is an editor's request, to which the model's `fim`
    settings apply, but unsure completions are returned too, since the model is measured."""
    body: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": question.max_tokens}
    if (gap := question.gap) is None:
        return body | {"messages": list(question.messages)}
    return body | {"prompt": gap.prefix, "suffix": gap.suffix, "stop": list(gap.stop), "min_confidence": 0}


def text_of(body: Any) -> str:
    """The text of a response, which has the same shape in both APIs."""
    return str(body["choices"][0]["message"]["content"] or "")
