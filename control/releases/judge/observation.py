"""One request of a canary, from its trace, or the outcome of a copy."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Arm(StrEnum):
    """The side that a session's hash selects, and whose pool had the request. A request that ran elsewhere, because a
    gateway or the router did not know the split yet, is no observation (`InferenceRequest.side_on`)."""

    CANDIDATE = "candidate"
    CONTROL = "control"


class Observation(msgspec.Struct, frozen=True, array_like=True):
    """One request for the judge. Stored and replayed in this order."""

    arm: Arm
    unit: int
    """63-bit hash of the session."""
    ttft_ms: float | None
    """None without text; a proof counts that as longer than any threshold."""
    itl_ms: float | None
    """The longest gap between two tokens; None if there are fewer than two."""
    failed: bool
    """Whether the engine failed: with a 5xx, a broken response, a refusal or no text. A limit, or a refusal by the
    gateway before an engine had the request, is no failure."""
    good: bool | None
    """Whether it kept all objectives; None if it had none."""
    left: bool = False
    """Whether its client left before the first text; then `ttft_ms` is the client's wait."""


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """Outcome of a customer's request and of its copy at the candidate. Stored in this order."""

    unit: int
    """63-bit hash of the session, different from an observation's."""
    worse: int
    """1 if the candidate alone failed, -1 if the customer's own engine alone failed, 0 if both or neither did."""
    compared: bool
    """Whether both sides answered: the candidate with text if the customer got text."""
