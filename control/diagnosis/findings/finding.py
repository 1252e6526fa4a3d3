"""The result of a rule."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from control.diagnosis.findings.fix import Fix


class Phase(StrEnum):
    """The phase that loses a request's time."""

    CLIENT = "client"
    NETWORK = "network"
    ARRIVAL = "arrival"
    LIMIT = "limit"
    ROUTE = "route"
    QUEUE = "queue"
    PREFILL = "prefill"
    QUEUE_OR_PREFILL = "queue_or_prefill"
    GRAMMAR = "grammar"
    ENGINE = "engine"
    GATEWAY = "gateway"
    FIRST_TOKEN = "first_token"
    DECODE = "decode"
    STREAM = "stream"


class Cause(StrEnum):
    """A cause that a rule can find; each is the name of a file in `rules`."""

    PLATFORM_FAILURES = "platform_failures"
    RETRACTIONS = "retractions"
    ENGINE_FAILURES = "engine_failures"
    LIMITS = "limits"
    NETWORK = "network"
    SLOW_REPLICA = "slow_replica"
    COLD_CACHE = "cold_cache"
    BROKEN_PREFIX = "broken_prefix"
    LOST_CACHE = "lost_cache"
    LONG_PROMPTS = "long_prompts"
    SLOW_ARRIVAL = "slow_arrival"
    SLOW_LIMITER = "slow_limiter"
    SLOW_ROUTER = "slow_router"
    QUEUE = "queue"
    SLOW_PREFILL = "slow_prefill"
    QUEUE_OR_PREFILL = "queue_or_prefill"
    GRAMMAR = "grammar"
    ENGINE_LINK = "engine_link"
    SLOW_FIRST_TOKEN = "slow_first_token"
    SLOW_DECODE = "slow_decode"
    CHOPPY_DECODE = "choppy_decode"
    SLOW_CLIENT = "slow_client"
    SLOW_FINISH = "slow_finish"


class WouldNotHelp(msgspec.Struct, frozen=True):
    """A change that is often proposed for a cause, and does not help."""

    fix: Fix
    why: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that was found. score: its cost in parts of the objective; 0 if it is not about time."""

    cause: Cause
    phase: Phase
    evidence: tuple[str, ...]
    """Sentences with the numbers they rest on."""
    fixes: tuple[Fix, ...]
    """The best first."""
    would_not_help: tuple[WouldNotHelp, ...] = ()
    questions: tuple[str, ...] = ()
    """Missing measurements that would help."""
    new: bool = True
    """Whether the earlier window lacked it; False if, as far as known, it always existed."""
    score: float = 0.0


class Clear(msgspec.Struct, frozen=True):
    """The cause was checked and is below its threshold."""

    cause: Cause


class NotEnough(msgspec.Struct, frozen=True):
    """The rule lacks the measurements to judge the cause."""

    cause: Cause
    why: str


Verdict = Finding | Clear | NotEnough
