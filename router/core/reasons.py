"""The reasons why a lease request waits or is refused, with a word for the metric's label and a sentence for people."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """The value is the `reason` of `slipstream_router_sheds`; for a request refused at its deadline, it is the reason
    why the request waited."""

    sentence: str
    """The text for records, explanations and refusals."""

    def __new__(cls, label: str, sentence: str) -> Reason:
        reason = object.__new__(cls)
        reason._value_ = label
        reason.sentence = sentence
        return reason

    # reasons that keep a request from a replica, or from all replicas of a pool
    PLACES_TAKEN = "places_taken", "every slot is taken"
    AVOIDED = "avoided", "engines that did not fail its tenant are busy"
    SUSPECTED = "suspected", "an engine that failed its tenant is being polled"
    HALF_OPEN = "half_open", "an engine that was taken out is tried by one request of each tenant"
    CONTEXT = "context", "no replica with a context that long is free"
    ADAPTERS = "adapters", "every adapter slot of the free replicas is in use or within another organization's share"
    RESERVED = "reserved", "the remaining slots are for tenants with less than their share"
    MEMORY = "memory", "no engine has memory left for the request"
    PACE_UNKNOWN = "pace_unknown", "the speed of the engines is not known yet, and they are busy"
    YIELDS = "yields", "its class yields, and others are being served"
    OVER_SHARE = "over_share", "its tenant has more than its share, and others are being served"
    PREFILL_TAKEN = "prefill_taken", "no prefill engine has a free slot"
    TTFT = "ttft", "no engine could begin to answer in time"
    TPOT = "tpot", "running streams would wait too long for their next token"

    # reason for background work, which does not count as shed and is in no metric
    NOT_IDLE = "not_idle", "the replica has other work, and this is background work"

    # reasons of a refusal before the deadline
    QUEUE_FULL = "queue_full", "every slot is taken and the queue is full"
    TURN_TOO_LATE = "turn_too_late", "its turn would come after its deadline"
    OUTRANKED = "outranked", "requests with a higher claim to the pool are waiting"
    GIVEN_UP = "given_up", "the queue cannot meet its deadlines and this is one of its largest requests"
    NO_ENGINE = "no_engine", "no healthy engine serves it"
    NO_ADAPTERS = "no_adapters", "its pool takes no adapters"
    UNKNOWN_MODEL = "unknown_model", "there is no such model"
    STARTING = "starting", "the router does not know its engines yet"


FOR_PROMPTS = frozenset({Reason.PACE_UNKNOWN, Reason.YIELDS, Reason.OVER_SHARE, Reason.TTFT, Reason.TPOT})
"""Reasons that concern prefill rather than a lack of slots or memory."""
