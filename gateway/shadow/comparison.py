"""Compares two answers to one request: the customer's and the candidate's. Pure; keeps no text.

Texts of a model that samples differ without being worse. So every number describes a pair, and none is a verdict: sums
over pairs show how often answers differ, and people decide which is better.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.generation import ChatPrompt, Generation
from gateway.shadow.answer import Answer, ToolCall

REFUSALS = (
    "i can't",
    "i cannot",
    "i can not",
    "i won't",
    "i'm sorry",
    "i am sorry",
    "sorry, but",
    "i'm unable",
    "i am unable",
    "i'm not able",
    "i must decline",
    "as an ai",
)
"""Beginnings of refusals, in lower case: a heuristic that treats both sides alike."""


class Served(msgspec.Struct, frozen=True):
    """One side of a pair: its response and timing. Times start at the engine's grant, after any queue of ours.

    ttft_ms: until the first text; None without text. tokens_per_s: after the first token; None for fewer than two
    tokens, or if the engine itself did not end the response.
    """

    answer: Answer
    ttft_ms: float | None = None
    tokens_per_s: float | None = None
    cached_tokens: int = 0
    completion_tokens: int = 0


class Comparison(msgspec.Struct, frozen=True):
    """Results by the columns of `gateway.shadow_pairs`. Values that a pair does not show are None."""

    same_text: bool
    first_difference: int | None
    """Characters before the first difference; None if the texts are equal."""
    baseline_characters: int
    candidate_characters: int
    baseline_finish: str | None
    candidate_finish: str | None
    baseline_json_valid: bool | None
    candidate_json_valid: bool | None
    """None if the client did not request JSON, or if the response is a tool call."""
    same_tool_calls: bool | None
    """None if neither side called a tool."""
    baseline_refused: bool
    candidate_refused: bool
    baseline_ttft_ms: float | None
    candidate_ttft_ms: float | None
    baseline_tokens_per_s: float | None
    candidate_tokens_per_s: float | None
    baseline_cached_tokens: int
    candidate_cached_tokens: int
    baseline_completion_tokens: int
    candidate_completion_tokens: int


def compare(baseline: Served, candidate: Served, *, json_asked: bool) -> Comparison:
    """Compare both responses to one request. json_asked: see `asks_for_json`."""
    one, other = baseline.answer, candidate.answer
    difference = first_difference(one.text, other.text)
    return Comparison(
        same_text=difference is None,
        first_difference=difference,
        baseline_characters=len(one.text),
        candidate_characters=len(other.text),
        baseline_finish=one.finish_reason,
        candidate_finish=other.finish_reason,
        baseline_json_valid=_json_valid(one) if json_asked else None,
        candidate_json_valid=_json_valid(other) if json_asked else None,
        same_tool_calls=_same_calls(one.tool_calls, other.tool_calls),
        baseline_refused=refuses(one),
        candidate_refused=refuses(other),
        baseline_ttft_ms=baseline.ttft_ms,
        candidate_ttft_ms=candidate.ttft_ms,
        baseline_tokens_per_s=baseline.tokens_per_s,
        candidate_tokens_per_s=candidate.tokens_per_s,
        baseline_cached_tokens=baseline.cached_tokens,
        candidate_cached_tokens=candidate.cached_tokens,
        baseline_completion_tokens=baseline.completion_tokens,
        candidate_completion_tokens=candidate.completion_tokens,
    )


def first_difference(one: str, other: str) -> int | None:
    """Number of leading characters that both share; None if the texts are equal.

    This is a binary search with comparisons at C's speed: texts are long, and it runs next to live requests.
    """
    if one == other:
        return None
    same, shorter = 0, min(len(one), len(other))
    step = shorter
    while step:
        if one[same : same + step] == other[same : same + step]:
            same += step
            step = min(step, shorter - same)
        else:
            step //= 2
    return same


def asks_for_json(generation: Generation) -> bool:
    """Whether the client requested JSON, with a schema or without."""
    prompt = generation.prompt
    requested = prompt.response_format if isinstance(prompt, ChatPrompt) else None
    return requested is not None and requested.get("type") in ("json_object", "json_schema")


def refuses(answer: Answer) -> bool:
    """Whether the response refuses: by its engine's report, or by a usual beginning."""
    if answer.refusal or answer.finish_reason == "content_filter":
        return True
    beginning = answer.text[:200].lstrip().lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return beginning.startswith(REFUSALS)


def _json_valid(answer: Answer) -> bool | None:
    """Whether the text is a JSON object. The schema is not checked: engines enforce it while they write."""
    if answer.tool_calls:
        return None
    return isinstance(_value(answer.text), dict)


def _same_calls(one: tuple[ToolCall, ...], other: tuple[ToolCall, ...]) -> bool | None:
    if not one and not other:
        return None
    return len(one) == len(other) and all(map(_same_call, one, other))


def _same_call(one: ToolCall, other: ToolCall) -> bool:
    """Whether two calls are the same; arguments may differ in the order of members and in blanks."""
    if one.name != other.name:
        return False
    return one.arguments == other.arguments or (
        (value := _value(one.arguments)) is not _NONE and value == _value(other.arguments)
    )


_NONE = object()


def _value(text: str) -> Any:
    """The JSON value; `_NONE` for invalid JSON."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _NONE
