"""One request of a canary from its trace, or its copy."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Arm(StrEnum):
    """The side that a session's hash put it on, and whose pool had the request. What ran elsewhere, by a split that a
    gateway or the router did not know yet, is no observation (`InferenceRequest.side_on`)."""

    CANDIDATE = "candidate"
    CONTROL = "control"


class Observation(msgspec.Struct, frozen=True, array_like=True):
    """One request for the judge. Stored and replayed in this order."""

    arm: Arm
    unit: int
    """63-bit hash of the session that was assigned."""
    ttft_ms: float | None
    """None: no response with a text; a proof counts that as longer than any threshold."""
    itl_ms: float | None
    """The longest gap between two tokens; None: fewer than two."""
    failed: bool
    """The engine failed: 5xx, broken off, refused by the engine or without a text; never a limit, nor a refusal by the
    gateway before an engine had it."""
    good: bool | None
    """Whether it kept all objectives; None: it had none."""
    left: bool = False
    """Its client left before the first text: `ttft_ms` is the client's wait."""


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """Outcome of a customer's request and of its copy at the candidate. Stored in this order."""

    unit: int
    """63-bit hash of the session, another than an observation's."""
    worse: int
    """1: the candidate alone failed; -1: the customer's own engine alone; 0: both or neither."""
    compared: bool
    """Both sides answered, as far as the customer's did."""
