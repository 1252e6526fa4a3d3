"""What a step produced, as the HTTP side receives it."""

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
    """Why a sequence ended."""

    reason: str
    """`stop`, `length`, `abort` or `error`."""
    matched: int | str | None = None
    """The stop id or stop string that was met."""
    error: SlipstreamError | None = None
    """The error that the client gets."""


class Speculated(msgspec.Struct, frozen=True):
    """What guessing ahead came to for one sequence so far."""

    checks: int = 0
    """Steps that checked guesses."""
    drafts: int = 0
    """Tokens guessed and checked."""
    accepted: int = 0
    """Of these, those that were right."""


class Timing(msgspec.Struct, frozen=True):
    """Where a sequence's time went before its first token, seconds by the engine's clock."""

    queue_s: float
    """From its arrival to its first admission."""
    prefill_s: float
    """From there to the end of its prompt."""
    retractions: int
    """How often it was sent back to the queue."""
    grammar_s: float = 0.0
    """Before its arrival: waiting for the grammar's compiler, and compiling. 0 without a grammar."""


class Delta(msgspec.Struct, frozen=True):
    """News of one sequence: new text, its end, or both. Counts are running totals."""

    rid: str
    index: int
    text: str
    prompt_tokens: int
    """Less than the prompt has, down to 0, when it ended before that was read to its end."""
    completion_tokens: int
    """Tokens generated so far, a final stop token included, as SGLang counts."""
    cached_tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    """Of the tokens since the last delta; the first one begins with the prompt's, where they were asked for."""
    finish: Finish | None = None
    speculated: Speculated | None = None
    """With the end of a sequence that had drafts."""
    timing: Timing | None = None
    """With the end of a sequence whose prompt was computed."""
