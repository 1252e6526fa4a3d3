"""A gateway's state in the router: its stream, its leases and its waiting requests. It refers to pools by name, so that
this file imports no module that works on it."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from contracts.desired_state import Model
from contracts.lease import Lease, LeaseRequest
from router.core.reasons import Reason
from router.core.split import SplitChoice

ENDED_LIMIT = 4_096
"""Most ended lease ids that are remembered. A stream keeps order, so they only guard against late copies."""


class LiveLease(msgspec.Struct):
    """The core's state of a lease. For a lease adopted from a hello, only the tokens are known."""

    lease_id: str
    replica_id: str
    tokens: int
    since: float
    lease: Lease | None
    """The granted lease, so that a repeated request gets the same answer; None if adopted from a hello."""
    ask: LeaseRequest | None = None
    prompt_tokens: int = 0
    uncached_tokens: int = 0
    """Prompt tokens that the engine is expected to compute."""
    pairs: float = 0.0
    """Attention pairs of these tokens."""
    growth_tokens: int = 0
    """Expected length of the response: the p90 of similar responses."""
    answer_tokens: int = 0
    """Tokens counted for its response; see `Replica.answer_tokens`."""
    answer_left: int = 0
    """The part of `answer_tokens` that was still to come at the last poll."""
    polled: bool = False
    """Whether its tokens were in the last load report."""
    overlap_blocks: int = 0
    overlap_stamp: int = -1
    """The replica's last use of the matching blocks; see `PrefixIndex.age`."""
    computing_stamp: int = 1 << 62
    """Stamp of the oldest prompt that the replica was computing at the grant."""
    index_stamp: int = 0
    """Stamp of its own prompt."""
    read_blocks: int = 0
    """Leading blocks of its prompt that the engine has already computed, for this or another request. Further blocks
    that the engine is assumed to hold are still being computed, and may never be finished."""
    work_ahead_tokens: int = 0
    """Prompt tokens to compute before its own at the grant."""
    work_ahead_pairs: float = 0.0
    running: int = 0
    """Number of decoding streams at the grant."""
    trial: bool = False
    """Whether it was granted as a trial of the replica's half-open breaker."""
    waits_for_first_token: bool = False
    first_token_at: float = 0.0
    work_s: float = 0.0
    """Time for which its prompt keeps the engine busy, as expected at the grant."""
    worked_before_s: float = 0.0
    """`Replica.worked_s` at its first token; the growth since then is the time for which this stream paused."""
    observed_s: float = 0.0
    """Time to the first token, by the gateway; 0 if it is not reported yet or was already learnt from."""
    ttft_s: float = 0.0
    """The same time, kept until the lease ends."""
    in_flight: int = 0
    """Number of the replica's leases at the grant, including this one."""
    adapter: str = ""
    """The adapter that it needs; empty for none, or if unknown (adopted from a hello)."""
    pool: str = ""
    """The pool whose queue counts it for its tenant; empty for none: background work, or a removed pool."""
    length_class: int = 0
    tpot_slo_s: float = 0.0
    """Promised time per token; 0 for none."""

    @property
    def unwaited(self) -> bool:
        """Whether it is background work, for which no client waits."""
        return self.ask is not None and bool(self.ask.idle_replica)


class Session(msgspec.Struct, eq=False):
    """The mutable state of one gateway's epoch, which the dispatcher owns."""

    gateway_id: str
    epoch: str
    connection: int | None = None
    """None while disconnected."""
    grace_ends_at: float | None = None
    leases: dict[str, LiveLease] = {}
    waiting: dict[str, QueuedRequest] = {}
    ended: OrderedDict[str, None] = msgspec.field(default_factory=OrderedDict)

    def remember_ended(self, lease_id: str) -> None:
        """Remember that a lease has ended, so that a late copy of its acquire cannot revive it."""
        self.ended[lease_id] = None
        if len(self.ended) > ENDED_LIMIT:
            self.ended.popitem(last=False)


class QueuedRequest(msgspec.Struct, eq=False):
    """The mutable state of one request that is being decided or waits, which the dispatcher owns."""

    session: Session
    ask: LeaseRequest
    model: Model
    asked_at: float
    ttft_slo_s: float = 0.0
    """Time to first token that is promised to prompts of its tier and length; 0 for none."""
    length: int = 0
    """Longest prompt of the requests with the same promise; 0 for no promise."""
    length_class: int = 0
    """The same if length classes share the pool; 0 if there is one, and requests that cannot be in time are shed."""
    work_s: float = 0.0
    """Expected time for which its prompt keeps an average engine busy, known while it waits."""
    returned: bool = False
    """Whether it was refused before and has returned at the announced time, for which a slot was reserved."""
    tpot_slo_s: float = 0.0
    """Promised time per token of the streams next to it; 0 for none."""
    start_by: float = 0.0
    """Time by which an engine must get it to keep the promise; without a promise, the time of the request."""
    number: int = 0
    """Order of arrival in the queue."""
    pool: str = ""
    """The pool in whose queue it waits; empty if it is in no queue, although the deadline heap may still hold it."""
    engine_model: str = ""
    """The engines' name for the model, once the pool is chosen."""
    why: Reason | None = None
    """The reason why it was not placed at the last try."""
    split: SplitChoice | None = None
    """The choice between the whole pool and a pair, if its pool has both."""

    def __post_init__(self) -> None:
        self.start_by = self.asked_at

    @property
    def deadline_at(self) -> float:
        """Latest time of a grant."""
        return self.asked_at + self.ask.deadline_s

    def again(self, model: Model) -> QueuedRequest:
        """The same request under a new desired state, with its original age and its claimed reservation."""
        return QueuedRequest(self.session, self.ask, model, self.asked_at, returned=self.returned)
