"""How an item is asked in the API that customers use: a conversation, or a gap in a file."""

from __future__ import annotations

from typing import Any

from evals.slices.item import Question

CHAT, FILL = "/v1/chat/completions", "/v1/fim/completions"


def path_of(question: Question) -> str:
    """Where it is asked."""
    return CHAT if question.gap is None else FILL


def body_of(question: Question, model: str) -> dict[str, Any]:
    """For the greedy answer. Of a gap as an editor asks it, whose model's `fim` settings hold; but an unsure completion
    is not left out, for it is the model that is measured."""
    body: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": question.max_tokens}
    if (gap := question.gap) is None:
        return body | {"messages": list(question.messages)}
    return body | {"prompt": gap.prefix, "suffix": gap.suffix, "stop": list(gap.stop), "min_confidence": 0}


def text_of(body: Any) -> str:
    """Of an answer, which both APIs shape alike."""
    return str(body["choices"][0]["message"]["content"] or "")
