"""One pool as the router sees it: its replicas, who waits for them, and everything learnt about them."""

from __future__ import annotations

from collections.abc import Collection

from contracts.lease import LeaseRequest
from contracts.prefix import BLOCK_TOKENS
from contracts.speculation import Way
from router.core.avoidance import Avoidance
from router.core.fair_queue import FairQueue
from router.core.latency_model import LatencyModel
from router.core.load_shedding import Served
from router.core.outputs import Outputs
from router.core.prefix_index import PrefixIndex
from router.core.replica import Replica
from router.core.retry_reservations import RetryReservations
from router.core.ring import Ring
from router.core.speculation import UNGOVERNED, SpeculationGovernor
from router.core.split import SplitRule
from router.core.teachers import Teachers
from router.core.wait_estimator import WaitEstimator

TOKENS_PER_BLOCK = 64.0
"""Before any prompt has been seen: 256 bytes at four to the token."""
BEYOND_STEP = 0.05
BEYOND_LIMIT_TOKENS = 2 * BLOCK_TOKENS
SLOW_ALLOWED = 0.15
"""Part of the streams that may miss their time per token before fewer prompts are let in."""
SLOW_STEP = 0.02
SPARE_PART_STEP = 0.003
"""Per stream that ends. A burst of short answers ends hundreds of them in a second, and must not close the pool for a
minute."""
SPARE_PART = 0.75
"""Of the time that streams can spare on average; some have short answers and can spare less."""
LEAST_SPARE_PART = 0.3
UNKEEPABLE = 0.9
"""Engines that need this part of the promised time per token for a single stream miss it, whatever is held back."""
HOPELESS_SHARE = 0.8
"""Of their time, which is given to prompts."""
LEAST_RATE = 0.1
"""Engines too slow for their promise still compute prompts."""
DEBT_S = 0.5
"""Streams make up for a pause of this length later."""
OVER_SHARE_DEBT_S = 0.15
"""The same for a tenant with more than its share: the rest is for the others."""
CONTESTED_DEBT_S = 1.3
CONTESTED_S = 2.0
"""While a tenant has more than its share, so much room is kept for those who have not."""
RETRACTION_STEP = 1.25
SAFETY_LIMIT = 3.0
SAFETY_DECAY = 0.995


class PoolState:
    """Mutable; owned by `Fleet`."""

    def __init__(self, name: str, limit_blocks: int) -> None:
        self.name = name
        self.replicas: list[Replica] = []
        self.free: list[Replica] = []
        """Those with a place left, in no particular order. Kept by `refresh`, so that nobody has to look at all."""
        self.usable = 0
        """How many may be given leases, full ones included. Kept likewise."""
        self.idle = 0
        """How many of the free ones serve nobody. Kept likewise."""
        self.max_adapters = 0
        """Of each replica; 0: its engines take none."""
        self.prefill_pool = ""
        """The pool that computes its prompts; empty: it does."""
        self.decode_pool = ""
        """The pool that it computes prompts for; empty: its own requests'."""
        self.split_pool = ""
        """The decode pool of the pair that its requests may be split over; empty: none."""
        self.whole_pool = ""
        """Of a decode pool: the pool whose requests it shares; empty: none."""
        self.split_rule = SplitRule()
        self.governor: SpeculationGovernor | None = None
        """Of drafts; None: each engine drafts as it was started to, for which `ungoverned` has the reason."""
        self.ungoverned = UNGOVERNED
        self.queue = FairQueue()
        self.served = Served()
        self.retry_reservations = RetryReservations()
        self.avoidance = Avoidance()
        self.shed_at = 0.0
        """When the queue was last gone through for asks that cannot be served."""
        self.wait_estimator = WaitEstimator()
        self.latency_model = LatencyModel()
        self.first_token_teachers = Teachers()
        self.token_teachers = Teachers()
        """Whose reports `latency_model` is learnt from."""
        self.outputs = Outputs()
        self.index = PrefixIndex(limit_blocks)
        self.by_slot: dict[int, Replica] = {}
        self.reports_cached = False
        """Its engines say how much of a prompt was cached; until one has, their silence means nothing."""
        self.leases = 0
        """On all its replicas."""
        self.foreign = 0
        """Requests of others that its usable engines told of when they were asked last; kept where there is a
        governor."""
        self.weight = 0.0
        """Of all its replicas, as placement has it."""
        self.weighted = False
        """These differ."""
        self.debt_s = 0.0
        """Time of prefill granted that running streams have not yet made up for; see `spare_part`."""
        self.over_debt_s = 0.0
        """Of it, what was granted to tenants that thereby had more than their share: it holds nobody else back."""
        self._debt_at = 0.0
        self._contested_at = float("-inf")
        """When a tenant with more than its share was last held back for the others' sake."""
        self.spare_part = 1.0
        """Part of the time that streams can spare which is given to new prompts; learnt from how they fared."""
        self.slow = 0.0
        """Part of the streams that missed their time per token, moving."""
        self.open_at = float("inf")
        """When a pool that was closed for the sake of its streams opens again; known once somebody waits for it."""
        self.predicted_cached_tokens = 0
        self.reported_cached_tokens = 0
        """Of all leases that ended with a usage."""
        self.beyond_tokens = 0.0
        """Tokens that engines find cached behind the last whole block that was known to be; see `saw_beyond`."""
        self.safety = 1.0
        """Factor on expected growth: up when an engine ran out of memory, slowly down while none does."""
        self.retractions = 0
        """Requests that its engines threw out of memory."""
        self.draft_tokens = 0
        """Guessed ahead by its engines, where their load reports tell of it."""
        self.accepted_draft_tokens = 0
        self._prompt_tokens = 0.0
        self._prompt_blocks = 0.0
        self._ring: Ring | None = None
        self._slots = 0
        self._freed_slots: list[int] = []

    @property
    def places(self) -> int:
        """Leases its usable replicas can hold together."""
        return sum(replica.max_concurrency for replica in self.replicas if replica.usable)

    @property
    def whole(self) -> bool:
        """Every replica that is meant to serve does: what it has no room for now, it was not made for."""
        return all(replica.usable for replica in self.replicas if replica.weight > 0)

    def ready(self, ask: LeaseRequest) -> bool:
        """A replica that is usable could serve the ask, free or not."""
        return any(one.usable and one.suits(ask) for one in self.replicas)

    @property
    def unknown(self) -> bool:
        """Nobody has said what any of its replicas can take: whoever waits for them is served as they came."""
        return all(replica.unknown for replica in self.replicas)

    def kept_away_from(self, ask: LeaseRequest) -> Collection[str]:
        """Ids of the replicas that an ask goes to no more, because they failed its organization and others have not."""
        away = self.avoidance.of(ask.organization_id)
        if not away:
            return ()
        others = any(one.usable and one.id not in away and one.suits(ask) for one in self.replicas)
        return away if others else ()

    @property
    def ring(self) -> Ring:
        """Its replicas on a consistent-hash ring."""
        if self._ring is None:
            self._ring = Ring([replica for replica in self.replicas if replica.weight > 0])
        return self._ring

    @property
    def tokens_per_block(self) -> float:
        """As learnt from prompts whose tokens and blocks are both known."""
        return self._prompt_tokens / self._prompt_blocks if self._prompt_blocks >= 1 else TOKENS_PER_BLOCK

    def opens_in(self, tpot_slo_s: float, now: float, over_share: bool, *, yields: bool = False) -> float:
        """Until running streams can bear one more prompt and still get a token every `tpot_slo_s`; 0: at once.

        While an engine computes a prompt its streams all but stand still. What is granted is a debt of the whole pool,
        not of one replica: closing replicas one by one would send every prompt to the one that is open instead of to
        the one that knows it. It is paid off at the rate at which streams can wait and still keep their promise.
        """
        usable = self.usable
        if not usable or not self.latency_model.trusted:
            return 0.0
        rate = self.pay_off(tpot_slo_s, now)
        if over_share or yields:
            if over_share:  # what yields is not in the others' way, and they need no room kept from it
                self._contested_at = now
            debt_s, allowed_s = self.debt_s, OVER_SHARE_DEBT_S * usable
        else:
            debt_s = self.debt_s - self.over_debt_s
            allowed_s = (CONTESTED_DEBT_S if now - self._contested_at < CONTESTED_S else DEBT_S) * usable
        return max(0.0, (debt_s - allowed_s) / rate)

    def pay_off(self, tpot_slo_s: float, now: float) -> float:
        """Bring the debt up to now. Returns the rate at which it is paid off: see `_rate`."""
        rate = self._rate(tpot_slo_s)
        left_s = max(0.0, self.debt_s - rate * (now - self._debt_at))
        if self.over_debt_s:
            self.over_debt_s *= left_s / self.debt_s
        self.debt_s, self._debt_at = left_s, now
        return rate

    def owe(self, work_s: float, tpot_slo_s: float, over_share: bool, now: float) -> None:
        """So much prefill was granted. over_share: to a tenant that has more than its share, this prompt included."""
        if tpot_slo_s:
            self.pay_off(tpot_slo_s, now)
        self.debt_s += work_s
        if over_share:
            self.over_debt_s += work_s

    def _rate(self, tpot_slo_s: float) -> float:
        """Seconds of prefill per second that all its usable replicas may do beside streams that were promised this."""
        if self.latency_model.token_s(1) >= UNKEEPABLE * tpot_slo_s:
            return HOPELESS_SHARE * self.usable
        spare = 1.0 - self.latency_model.token_s(self.leases // max(self.usable, 1)) / tpot_slo_s
        return max(SPARE_PART * self.spare_part * spare, LEAST_RATE) * self.usable

    def backlog_s(self, credit_s: float) -> float:
        """Of the prefill granted, what is in everyone's way: what streams have yet to make up for beyond a credit per
        replica, without what holds nobody else back."""
        return max(0.0, self.debt_s - self.over_debt_s - credit_s * self.usable)

    def saw_pace(self, kept: bool) -> None:
        """A stream ended, with its time per token as promised or not."""
        self.slow += SLOW_STEP * ((not kept) - self.slow)
        self.spare_part = min(
            max(self.spare_part * (1 - SPARE_PART_STEP * (self.slow - SLOW_ALLOWED)), LEAST_SPARE_PART), 1.0
        )

    def saw_prompt(self, tokens: int, blocks: int) -> None:
        """A prompt of so many tokens made so many whole blocks."""
        if blocks:
            self._prompt_tokens = 0.998 * self._prompt_tokens + tokens
            self._prompt_blocks = 0.998 * self._prompt_blocks + blocks + 0.5  # half a block is cut off on average

    def saw_beyond(self, tokens: int) -> None:
        """An engine had so many more tokens of a prompt than the whole blocks that were expected.

        Texts part, and answers are taken up again, in the middle of a block. Far fewer means eviction: that is the
        index's to learn. Far more is another request's doing.
        """
        if 0 <= tokens <= BEYOND_LIMIT_TOKENS:
            self.beyond_tokens += BEYOND_STEP * (tokens - self.beyond_tokens)

    def refresh(self, replica: Replica) -> None:
        """Something about this replica has changed: is it among the free ones?"""
        usable = replica.usable and replica.slot >= 0
        if usable is not replica.counted:
            replica.counted = usable
            self.usable += 1 if usable else -1
        idle = usable and not replica.leases and not replica.foreign and replica.free
        if idle is not replica.counted_idle:
            replica.counted_idle = idle
            self.idle += 1 if idle else -1
        free, at = self.free, replica.at_free
        if replica.free:
            if at < 0:
                replica.at_free = len(free)
                free.append(replica)
        elif at >= 0:
            last = free.pop()
            if last is not replica:
                free[at] = last
                last.at_free = at
            replica.at_free = -1

    def become(self, replicas: list[Replica]) -> None:
        """Have these replicas from now on."""
        for replica in self.replicas:
            if replica not in replicas:
                self.leave(replica)
        self.replicas = replicas
        self._ring = None
        self.leases = sum(replica.leases for replica in replicas)
        self.weigh()
        for replica in replicas:
            if self.by_slot.get(replica.slot) is not replica:
                replica.slot = self._freed_slots.pop() if self._freed_slots else self._slots
                self._slots = max(self._slots, replica.slot + 1)
                self.by_slot[replica.slot] = replica
            self.refresh(replica)

    def weigh(self) -> None:
        """Sum up what its replicas weigh in placement: those of the variant that its governor does not want, less."""
        governor = self.governor
        for replica in self.replicas:
            other = governor is not None and governor.way is Way.VARIANTS and replica.speculation is not governor.on
            replica.preference = governor.rule.other_weight if governor is not None and other else 1.0
        self.weight = sum(replica.pull for replica in self.replicas)
        self.weighted = len({replica.pull for replica in self.replicas if replica.weight > 0}) > 1

    def govern(self, now: float) -> None:
        """Let its governor, if it has one, see how much there was to do until now. To be called before what runs or
        waits changes."""
        if self.governor is None or not self.usable:
            return
        running = self.leases + self.foreign + len(self.queue)
        if self.governor.saw(running / self.usable, now):
            self.weigh()

    @property
    def no_drafts(self) -> bool:
        """What is granted now is to say that it wants no drafts."""
        return self.governor is not None and self.governor.way is Way.REQUEST and not self.governor.on

    @property
    def speculation(self) -> str:
        """Whether its engines draft, and why, in a few words."""
        return self.ungoverned if self.governor is None else self.governor.told

    def leave(self, replica: Replica) -> None:
        """It is no longer part of the pool; nothing is known about its cache."""
        self.avoidance.forget(replica.id)
        if self.by_slot.get(replica.slot) is replica:
            del self.by_slot[replica.slot]
            self.index.forget(replica.slot)
            self._freed_slots.append(replica.slot)
        replica.slot = -1
        self.refresh(replica)
        if replica.at_free >= 0 and replica.at_free < len(self.free) and self.free[replica.at_free] is replica:
            last = self.free.pop()
            if last is not replica:
                self.free[replica.at_free] = last
                last.at_free = replica.at_free
        replica.at_free = -1

    def capacity_blocks(self, replica: Replica, default: int) -> int:
        """Blocks its cache is thought to keep."""
        if not replica.load.capacity_tokens:
            return max(1, int(default * replica.fill))
        return max(1, int(replica.load.capacity_tokens * replica.fill / self.tokens_per_block))

    def retracted(self, times: int) -> None:
        """An engine ran out of memory and threw requests out."""
        self.retractions += times
        for _ in range(min(times, 4)):
            self.safety = min(self.safety * RETRACTION_STEP, SAFETY_LIMIT)

    def ended_well(self) -> None:
        """An answer ended as it should."""
        self.safety = max(1.0, self.safety * SAFETY_DECAY)
