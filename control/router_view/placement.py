"""The reasons for the router's choice of an engine, attempt by attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class PlacementCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One replica that the router considered."""

    replica_id: str
    chosen: bool
    held_tokens: int
    """Estimated number of prompt tokens in its cache."""
    uncached_tokens: int
    """The remaining prompt tokens, which it would have had to compute."""
    ahead_tokens: int
    """Prompt tokens of other requests that it still had to compute."""
    leases: int
    """Its running requests, at most `max_concurrency`, for the reason in `limited_by`."""
    max_concurrency: int
    limited_by: str
    predicted_ms: float
    """Predicted time to the first token."""
    cost: float
    """The policy chose the lowest cost; 0 if it has no costs."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """One decision. A field is null if its value is not known yet or never will be."""

    attempt: int
    pool: str
    policy: str
    queued_ms: float
    """Time in the queue. waited_for: the reason at the last attempt."""
    waited_for: str
    chosen: str
    """The replica; empty if refused, for the reason in `refused`."""
    refused: str
    prefill: str
    """The replica that computed the prompt; empty if the chosen one did."""
    split: str
    """Why one engine or a pair served the request; empty if its pool has no choice."""
    speculation: str
    """Whether its engine could draft, and why."""
    adapter: str
    """The LoRA adapter that it needed; empty without one."""
    predicted_ms: float
    """Predicted time to the first token. actual_ms: the actual time."""
    actual_ms: float | None
    predicted_cached_tokens: int
    actual_cached_tokens: int | None
    regret_ms: float | None
    """Delay of the first token, compared with the prediction for the best other replica."""
    candidates: list[PlacementCandidate]


def placement_of(told: Mapping[str, Any]) -> Placement:
    """Convert a `Decision` in protobuf's JSON form, in which infinite values are words."""
    candidates = [
        PlacementCandidate(
            replica_id=each["replica_id"],
            chosen=each["replica_id"] == told["chosen"],
            held_tokens=told["prompt_tokens"] - each["uncached_tokens"] if each["overlap_blocks"] else 0,
            uncached_tokens=each["uncached_tokens"],
            ahead_tokens=each["ahead_tokens"],
            leases=each["leases"],
            max_concurrency=each["max_concurrency"],
            limited_by=each["limited_by"],
            predicted_ms=float(each["predicted_s"]) * 1e3,
            cost=float(each["cost"]),
        )
        for each in told["candidates"]
    ]
    return Placement(
        attempt=told["attempt"],
        pool=told["pool"],
        policy=told["policy"],
        queued_ms=float(told["queued_s"]) * 1e3,
        waited_for=told["waited_for"],
        chosen=told["chosen"],
        refused=told["refused"],
        prefill=told["prefill"],
        split=told.get("split", {}).get("why", ""),
        speculation=told["speculation"],
        adapter=told["adapter"],
        predicted_ms=float(told["predicted_s"]) * 1e3,
        actual_ms=_ms(told.get("actual_s")),
        predicted_cached_tokens=told["predicted_cached_tokens"],
        actual_cached_tokens=told.get("actual_cached_tokens"),
        regret_ms=_ms(told.get("regret_s")),
        candidates=sorted(candidates, key=lambda each: each.cost),
    )


def _ms(seconds: float | str | None) -> float | None:
    return None if seconds is None else float(seconds) * 1e3
