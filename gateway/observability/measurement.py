"""Where a request ran and how its tokens came, as its trace and the metrics tell it."""

from __future__ import annotations

import msgspec


class Measurement(msgspec.Struct, frozen=True, gc=False):
    """By the columns of `gateway.request_traces`. What is not known, or is not the engine's own, is None.

    Of several attempts: the last one that was given an engine. Only it can have sent anything to the client.
    """

    pool: str | None = None
    replica_id: str | None = None
    canary: bool | None = None
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
    retractions: int | None = None
