"""The output of a step, as the HTTP side receives it."""

from __future__ import annotations

import msgspec

from contracts.errors import SlipstreamError


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural logarithms of the model's own probabilities, before temperature, penalties and bias."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The likeliest ids, best first."""


class Finish(msgspec.Struct, frozen=True):
    """The reason why a sequence ended."""

    reason: str
    """`stop`, `length`, `abort` or `error`."""
    matched: int | str | None = None
    """The stop id or stop string that ended the sequence."""
    error: SlipstreamError | None = None
    """The error for the client."""


class Speculated(msgspec.Struct, frozen=True):
    """Speculation counts of one sequence so far."""

    checks: int = 0
    """Steps that checked drafts."""
    drafts: int = 0
    """Tokens drafted and checked."""
    accepted: int = 0
    """Drafts that were accepted."""


class Timing(msgspec.Struct, frozen=True):
    """The phases of a sequence before its first token, in seconds by the engine's clock."""

    queue_s: float
    """Time from arrival to first admission."""
    prefill_s: float
    """Time from first admission to the end of the prompt."""
    retractions: int
    """Number of times that the sequence returned to the queue."""
    grammar_s: float = 0.0
    """Time before arrival for the wait for a grammar compiler and the compilation; 0 without a grammar."""


class Delta(msgspec.Struct, frozen=True):
    """New text of one sequence, its end, or both. Counts are running totals."""

    rid: str
    index: int
    text: str
    prompt_tokens: int
    """Prompt tokens read: fewer than the prompt has, down to 0, if the sequence ended early."""
    completion_tokens: int
    """Tokens generated so far, including a final stop token, like SGLang's count."""
    cached_tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    """Those of the tokens since the last delta. The first delta begins with the prompt's if they were requested."""
    finish: Finish | None = None
    speculated: Speculated | None = None
    """Set at the end of a sequence that had drafts."""
    timing: Timing | None = None
    """Set at the end of a sequence whose prompt was computed."""
    vector: bytes | None = None
    """float32 numbers, set at the end of a sequence of a model that returns vectors."""
