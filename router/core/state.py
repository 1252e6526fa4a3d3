"""A gateway's state at the router: its stream, its leases, its waiting asks. Pools are referred to by name, so that
this file imports no module that works on it.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from contracts.desired_state import Model
from contracts.lease import Lease, LeaseRequest
from router.core.reasons import Reason
from router.core.split import SplitChoice

ENDED_LIMIT = 4_096
"""Lease ids remembered as over. A stream keeps order, so this only guards against late copies."""


class LiveLease(msgspec.Struct):
    """A lease as the core holds it. A lease adopted from a hello has only its tokens."""

    lease_id: str
    replica_id: str
    tokens: int
    since: float
    lease: Lease | None
    """The granted lease, so that a second ask gets the same answer; None when adopted from a hello."""
    ask: LeaseRequest | None = None
    prompt_tokens: int = 0
    uncached_tokens: int = 0
    """Prompt tokens that the engine is expected to compute."""
    pairs: float = 0.0
    """Attention pairs of these tokens."""
    growth_tokens: int = 0
    """Expected length of the response: the p90 of its kind."""
    answer_tokens: int = 0
    """Tokens counted for its response; see `Replica.answer_tokens`."""
    answer_left: int = 0
    """The part of them still to come at the last poll."""
    polled: bool = False
    """Its tokens were in the last load report."""
    overlap_blocks: int = 0
    overlap_stamp: int = -1
    """The replica's last use of the matching blocks; see `PrefixIndex.age`."""
    computing_stamp: int = 1 << 62
    """Stamp of the oldest prompt that was being computed there when it was granted."""
    index_stamp: int = 0
    """Stamp of its own prompt."""
    read_blocks: int = 0
    """Leading blocks of its prompt that its engine has read already, for this or another request. Blocks beyond them
    that it is assumed to hold are still being computed, and may never be."""
    work_ahead_tokens: int = 0
    """Prompt tokens to compute before its own when it was granted."""
    work_ahead_pairs: float = 0.0
    running: int = 0
    """Streams that were decoding then."""
    trial: bool = False
    """Granted as a trial of the replica's half-open breaker."""
    waits_for_first_token: bool = False
    first_token_at: float = 0.0
    work_s: float = 0.0
    """Time its prompt keeps the engine busy, as expected when it was granted."""
    worked_before_s: float = 0.0
    """`Replica.worked_s` at its first token: its growth since is the time this stream waited for."""
    observed_s: float = 0.0
    """Time to the first token, by the gateway; 0: not yet reported, or learnt from already."""
    ttft_s: float = 0.0
    """The same, kept until it ends."""
    in_flight: int = 0
    """Leases of its replica when it was granted, itself included."""
    adapter: str = ""
    """The adapter that it needs; empty: none, or unknown (for one adopted from a hello)."""
    pool: str = ""
    """The pool whose queue counts it for its tenant; empty: none, background work, or a removed pool."""
    length_class: int = 0
    tpot_slo_s: float = 0.0
    """Promised time per token; 0: none."""

    @property
    def unwaited(self) -> bool:
        """It is background work that no client waits for."""
        return self.ask is not None and bool(self.ask.idle_replica)


class Session(msgspec.Struct, eq=False):
    """One epoch of one gateway. Mutable; owned by the dispatcher."""

    gateway_id: str
    epoch: str
    connection: int | None = None
    """None while disconnected."""
    grace_ends_at: float | None = None
    leases: dict[str, LiveLease] = {}
    waiting: dict[str, QueuedRequest] = {}
    ended: OrderedDict[str, None] = msgspec.field(default_factory=OrderedDict)

    def remember_ended(self, lease_id: str) -> None:
        """This id is over permanently: a late copy of its acquire must not revive it."""
        self.ended[lease_id] = None
        if len(self.ended) > ENDED_LIMIT:
            self.ended.popitem(last=False)


class QueuedRequest(msgspec.Struct, eq=False):
    """One ask that is being decided or waits. Mutable; owned by the dispatcher."""

    session: Session
    ask: LeaseRequest
    model: Model
    asked_at: float
    ttft_slo_s: float = 0.0
    """Time to first token promised to prompts of its tier and length; 0: none."""
    length: int = 0
    """Longest prompt of the asks with the same promise; 0: no promise."""
    length_class: int = 0
    """The same where length classes share the pool; 0: all are one, and asks that cannot be in time are shed."""
    work_s: float = 0.0
    """Expected time for which its prompt keeps an average engine busy, known while it waits."""
    returned: bool = False
    """It was refused before and has returned at the announced time: its slot was reserved."""
    tpot_slo_s: float = 0.0
    """Promised time per token of the streams next to it; 0: none."""
    start_by: float = 0.0
    """Time at which an engine must have it to keep the promise; without a promise, the time of the ask."""
    number: int = 0
    """Order of arrival in the queue."""
    pool: str = ""
    """The pool in whose queue it stands; empty: in none (any more), though the deadline heap may still hold it."""
    engine_model: str = ""
    """The engines' name for the model, once the pool is chosen."""
    why: Reason | None = None
    """The reason it was not placed at the last try."""
    split: SplitChoice | None = None
    """The choice between the whole pool and a pair, where its pool has both."""

    def __post_init__(self) -> None:
        self.start_by = self.asked_at

    @property
    def deadline_at(self) -> float:
        """Latest time of a grant."""
        return self.asked_at + self.ask.deadline_s

    def again(self, model: Model) -> QueuedRequest:
        """The same ask under a new desired state, with its original age."""
        return QueuedRequest(self.session, self.ask, model, self.asked_at)
