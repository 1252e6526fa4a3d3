"""What a gateway has with the router: its stream, its leases, its waiting asks. Pools are named, not held, so that this
file imports none of those that work on it."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from contracts.desired_state import Model
from contracts.lease import Lease, LeaseRequest
from router.core.reasons import Reason
from router.core.split import SplitChoice

ENDED_LIMIT = 4_096
"""Lease ids remembered as over. A stream keeps order, so this only guards against copies that arrive late."""


class LiveLease(msgspec.Struct):
    """A lease as the core holds it. One adopted from a hello knows only its tokens."""

    lease_id: str
    replica_id: str
    tokens: int
    since: float
    lease: Lease | None
    """As granted, so that a second ask gets the same answer; None when adopted from a hello."""
    ask: LeaseRequest | None = None
    prompt_tokens: int = 0
    uncached_tokens: int = 0
    """Of the prompt, what the engine is expected to compute."""
    pairs: float = 0.0
    """The same in pairs of attention."""
    growth_tokens: int = 0
    """How long the answer is expected to get: the p90 of its kind."""
    answer_tokens: int = 0
    """Tokens counted for its answer; see `Replica.answer_tokens`."""
    answer_left: int = 0
    """Of it, what was still to come at the last poll."""
    polled: bool = False
    """Its tokens were in the last load report."""
    overlap_blocks: int = 0
    overlap_stamp: int = -1
    """When the replica had last used what matched; see `PrefixIndex.age`."""
    computing_stamp: int = 1 << 62
    """Stamp of the oldest prompt that was being computed there when it was granted."""
    index_stamp: int = 0
    """Its own prompt's."""
    read_blocks: int = 0
    """Leading blocks of its prompt that its engine has read already, for this or another request. What it is thought to
    hold beyond them is still being computed, and may never be."""
    work_ahead_tokens: int = 0
    """Prompt tokens that were to be computed before its own when it was granted."""
    work_ahead_pairs: float = 0.0
    running: int = 0
    """Streams that were decoding then."""
    trial: bool = False
    """Granted while the replica's breaker was trying."""
    waits_for_first_token: bool = False
    first_token_at: float = 0.0
    work_s: float = 0.0
    """Time its prompt keeps the engine busy, as expected when it was granted."""
    worked_before_s: float = 0.0
    """`Replica.worked_s` at its first token: what it grows by is what this stream waited for."""
    observed_s: float = 0.0
    """Time to the first token, as the gateway saw it; 0: not yet told, or learnt from already."""
    ttft_s: float = 0.0
    """The same, kept until it ends."""
    in_flight: int = 0
    """Leases of its replica when it was granted, itself included."""
    adapter: str = ""
    """That its engine needs for it; empty: none, or not known (of one adopted from a hello)."""
    pool: str = ""
    """Whose queue counts it for its tenant; empty: none, nobody waits for it, or one that is gone."""
    length_class: int = 0
    tpot_slo_s: float = 0.0
    """Promised time per token; 0: none."""

    @property
    def unwaited(self) -> bool:
        """Nobody waits for it."""
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
        """This id is over for good: a late copy of its acquire must not revive it."""
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
    """Longest prompt of those that are promised the same; 0: nothing is promised."""
    length_class: int = 0
    """The same where length classes share the pool; 0: all are one, and who cannot be in time is shed."""
    work_s: float = 0.0
    """How long its prompt is expected to keep an average engine busy, known while it waits."""
    returned: bool = False
    """It was refused before, told to come now, and has: its place was kept."""
    tpot_slo_s: float = 0.0
    """Time per token promised to those who run beside it; 0: none."""
    start_by: float = 0.0
    """When an engine must have it for the promise to hold; without a promise, when it was asked."""
    number: int = 0
    """Order of arrival in the queue."""
    pool: str = ""
    """In whose queue it stands; empty: in none (any more), though the deadline heap may still hold it."""
    engine_model: str = ""
    """What the engines of its pool call the model, once the pool is chosen."""
    why: Reason | None = None
    """What kept it from being placed when it was last tried."""
    split: SplitChoice | None = None
    """Whether it is served whole or by a pair, where its pool has the choice."""

    def __post_init__(self) -> None:
        self.start_by = self.asked_at

    @property
    def deadline_at(self) -> float:
        """Longest wait for a grant."""
        return self.asked_at + self.ask.deadline_s

    def again(self, model: Model) -> QueuedRequest:
        """The same ask under a new desired state, as old as it was."""
        return QueuedRequest(self.session, self.ask, model, self.asked_at)
