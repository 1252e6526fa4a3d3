"""The usage of one attempt: the engine's own counts, and how far they can be trusted."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one attempt, as the engine reported them. `prompt_tokens` includes the cached ones."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """Part of `completion_tokens`."""
    cache_write_tokens: int = 0
    """Part of `prompt_tokens`: written to a cache that the engine charges for. 0 if it reports none."""
    draft_tokens: int = 0
    """Tokens that speculation drafted and the model checked; part of no other count. 0 if the engine reports none."""
    accepted_draft_tokens: int = 0
    """Draft tokens that became output."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


class EngineTiming(msgspec.Struct, frozen=True):
    """The engine's own breakdown of the time before the first token, by its own clock."""

    queue_s: float
    """Time until admission."""
    prefill_s: float
    """Time from admission to the end of the prompt."""
    retractions: int
    """Number of times that the engine gave the request's memory to others and recomputed it later."""
    grammar_s: float | None = None
    """Time before the queue, until the grammar of its output was compiled; None if not reported."""


class Purpose(StrEnum):
    """The purpose of the deployment's own requests, which cost no tenant anything and count as no tenant's usage."""

    EVALS = "evals"
    BATCHES = "batches"
    """A run of a batch's line or of a response in the background. Its tenant pays for the stored result, which is a row
    of its own. The row of a streamed run that its tenant ended is billed itself, and has no purpose."""


class Outcome(StrEnum):
    """The certainty of an attempt's usage."""

    EXACT = "exact"
    """The engine's final count."""
    LOWER_BOUND = "lower_bound"
    """The last count seen before the engine was lost; at least this much was generated."""
    UNKNOWN = "unknown"
    """No count: a crash left none, and the engine could not report it later. The attempt is billed as zero."""


class Finish(StrEnum):
    """The reason an attempt ended."""

    COMPLETE = "complete"
    """The engine finished: stop, length or tool call."""
    CLIENT_GONE = "client_gone"
    """The client left or stalled; the gateway stopped the engine."""
    ENGINE_ERROR = "engine_error"
    """The engine refused, failed or was lost."""
    NOT_PLACED = "not_placed"
    """No engine was reached: shed, router down, or cancelled while waiting. Nothing ran."""
    GATEWAY_CRASH = "gateway_crash"
    """The gateway died; the attempt was closed by recovery."""
