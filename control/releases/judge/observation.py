"""One request of a canary, as its trace measured it, or its copy."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Arm(StrEnum):
    """The side that a session's hash put it on, and whose pool had the request. What ran elsewhere, by a split that a
    gateway or the router did not know yet, is no observation (`InferenceRequest.side_on`)."""

    CANDIDATE = "candidate"
    CONTROL = "control"


class Observation(msgspec.Struct, frozen=True, array_like=True):
    """What the judge is told of a request. Stored in this order, replayed as it was stored."""

    arm: Arm
    unit: int
    """63-bit hash of the session that was assigned."""
    ttft_ms: float | None
    """None: there was no answer with a text; a proof takes that for longer than any threshold."""
    itl_ms: float | None
    """The longest gap between two tokens; None: fewer than two."""
    failed: bool
    """By the engine's fault: 5xx, broken off, refused by the engine or without a text; never a limit, nor what the
    gateway refused before an engine had it."""
    good: bool | None
    """Whether it kept all objectives; None: nothing was promised it."""
    left: bool = False
    """Its client left before anything came: `ttft_ms` is what it had waited."""


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """What became of a customer's request and of its copy at the candidate, which nobody waits for. Stored in this
    order."""

    unit: int
    """63-bit hash of the session, another than an observation's."""
    worse: int
    """1: the candidate alone failed; -1: the customer's own engine alone; 0: both or neither."""
    compared: bool
    """Both sides answered, as far as the customer's did."""
