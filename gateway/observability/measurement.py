"""A request's engine and token timing, for its trace and the metrics."""

from __future__ import annotations

import msgspec

from contracts.split import Side


class Measurement(msgspec.Struct, frozen=True, gc=False):
    """Fields have the names of columns of `gateway.request_traces`. Unknown values, and values that are not the
    engine's own, are None.

    With several attempts, it describes the last attempt that got an engine, because only that one can have sent
    anything to the client.
    """

    pool: str | None = None
    replica_id: str | None = None
    canary: bool | None = None
    side: Side | None = None
    """Side of its model's split; None without a split."""
    release: str | None = None
    """Release of the split, for a request on one of the two sides that a release compares."""
    unit: int | None = None
    """Unit of its session (`contracts.split.unit_of`); set with `release`."""
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
