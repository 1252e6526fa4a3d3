"""What one attempt used: the engine's own counts, and how far they can be trusted."""

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
    """Part of `prompt_tokens`: written to a cache that the engine charges for. 0 where it reports none."""
    draft_tokens: int = 0
    """Proposed by speculation and checked; no part of any other count. 0 where the engine does not report it."""
    accepted_draft_tokens: int = 0
    """Of `draft_tokens`, those that became output."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


class EngineTiming(msgspec.Struct, frozen=True):
    """Where an engine says that a request's time went before its first token, by its own clock."""

    queue_s: float
    """Waiting to be admitted."""
    prefill_s: float
    """From there to the end of its prompt."""
    retractions: int
    """How often its memory was taken back for others, to be computed again."""
    grammar_s: float | None = None
    """Before it waited: until the grammar that its output must keep was compiled; None: the engine does not tell."""


class Purpose(StrEnum):
    """What the deployment itself asks something for. It costs nobody anything and is no tenant's usage."""

    EVALS = "evals"


class Outcome(StrEnum):
    """How far an attempt's usage is known."""

    EXACT = "exact"
    """The engine's final count."""
    LOWER_BOUND = "lower_bound"
    """The last count seen before the engine was lost; at least this much was generated."""
    UNKNOWN = "unknown"
    """A crash left no count and the engine could not be asked. Counted, reported, billed as nothing."""


class Finish(StrEnum):
    """Why an attempt ended."""

    COMPLETE = "complete"
    """The engine finished: stop, length or tool call."""
    CLIENT_GONE = "client_gone"
    """The client left or stalled; the engine was told to stop."""
    ENGINE_ERROR = "engine_error"
    """The engine refused, failed or was lost."""
    NOT_PLACED = "not_placed"
    """No engine was reached: shed, router down, or cancelled while waiting. Nothing ran."""
    GATEWAY_CRASH = "gateway_crash"
    """The gateway died; the attempt was closed by recovery."""
