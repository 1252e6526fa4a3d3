"""A pair: the answer to a customer's request, and the outcome of its copy at the candidate."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from contracts.generation import ChatPrompt
from gateway.prefixes.parts import text_of
from gateway.shadow.answer import Answer
from gateway.shadow.comparison import Comparison
from gateway.wire.prepared import Prepared

MAX_CHARACTERS = 16_384
"""Limit for each text of a review: the last characters of a prompt, the first of a response."""
CURSOR = "\N{BLACK VERTICAL RECTANGLE}"
"""Marks the gap in a prompt."""


class Outcome(StrEnum):
    """Outcome of a copy that a candidate accepted."""

    COMPARED = "compared"
    FAILED = "failed"
    """The candidate refused the copy, broke off, or wrote unreadable output."""
    LATE = "late"
    """The copy took longer than `shadow.timeout_s`."""
    LONG = "long"
    """The copy's response exceeds the comparison's limit. The candidate has not failed: a customer's response of that
    length is not copied."""
    ANSWERED = "answered"
    """The candidate answered a request at which the customer's own engine had failed."""
    SUPERSEDED = "superseded"
    """The copy gave way to a customer's request. A copy that fails at once never gives way, so without these a
    candidate that fails at few of all copies would seem to fail at most of them."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `gateway.shadow_pairs`, without texts and names."""

    id: str
    model: str
    release: str
    """Empty if the split is not a release's."""
    baseline_pool: str
    candidate_pool: str
    unit: int
    """The session; its pairs are not independent of each other."""
    prompt_tokens: int
    stage_share: float
    """The candidate's share of sessions when the request arrived: the stage of its release; 0 if it served none."""
    greedy: bool
    """Whether the temperature is 0: the same model would usually write the same text."""
    outcome: Outcome
    error_code: str | None = None
    baseline_error_code: str | None = None
    """Error of the customer's first engine, even if another engine served the request; None if it succeeded."""
    comparison: Comparison | None = None
    """None if there is nothing to compare."""


class PairTexts(msgspec.Struct, frozen=True):
    """The texts of a pair for reviewers, of a project that allows it."""

    project_id: str
    asked_at: datetime
    prompt: str
    baseline: str
    candidate: str


def prompt_text(prepared: Prepared) -> str | None:
    """The prompt for people; None if only token ids are known."""
    prompt = prepared.generation.prompt
    if isinstance(prompt, ChatPrompt):
        turns = (f"{turn.get('role')}: {text_of(turn.get('content'))}" for turn in prompt.messages)
        return "\n\n".join(turns)[-MAX_CHARACTERS:]
    if (gap := prepared.gap) is not None:
        half = MAX_CHARACTERS // 2
        return gap.prefix[-half:] + CURSOR + gap.suffix[:half]
    text = prompt.prompts[0]
    return text[-MAX_CHARACTERS:] if isinstance(text, str) else None


def answer_text(answer: Answer) -> str:
    """The response for people, with tool calls written out."""
    calls = (f"{call.name}({call.arguments})" for call in answer.tool_calls)
    return "\n".join(part for part in (answer.text, answer.refusal, *calls) if part)[:MAX_CHARACTERS]
