"""Where a request ran and how its tokens came, as its trace and the metrics tell it."""

from __future__ import annotations

import msgspec

from contracts.split import Side


class Measurement(msgspec.Struct, frozen=True, gc=False):
    """By the columns of `gateway.request_traces`. What is not known, or is not the engine's own, is None.

    Of several attempts: the last one that was given an engine. Only it can have sent anything to the client.
    """

    pool: str | None = None
    replica_id: str | None = None
    canary: bool | None = None
    side: Side | None = None
    """Of its model's split; None: there was none."""
    release: str | None = None
    """Whose split it was, of a request on either of the sides that a release compares."""
    unit: int | None = None
    """Its session, as `contracts.split.unit_of` numbers it; where `release` is."""
    stream: bool | None = None
    attempts: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    itl_max_ms: float | None = None
    gaps_over_100ms: int | None = None
    client_stall_ms: float | None = None
    engine_queue_ms: float | None = None
    engine_prefill_ms: float | None = None
    engine_grammar_ms: float | None = None
    retractions: int | None = None
