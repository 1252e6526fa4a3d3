"""The router's state of one engine: its desired configuration, its health and its leases."""

from __future__ import annotations

from enum import Enum

import msgspec

from contracts.lease import Engine, LeaseRequest
from engines.drivers.base import Load
from router.core.breaker import TRIALS_AT_ONCE, Breaker
from router.core.concurrency_limit import ConcurrencyLimit
from router.core.held_adapters import HeldAdapters
from router.core.reasons import Reason
from router.core.slowness import Slowness
from router.core.state import LiveLease


class Health(Enum):
    """The known health of a replica."""

    UNKNOWN = "unknown"
    """Not polled yet. Requests wait for the result and are not refused."""
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """A gateway reported a fault, and the deciding poll is in progress. Only organizations whose requests failed wait
    for the poll, so that one tenant's fault withholds the replica from no other tenant."""
    UNHEALTHY = "unhealthy"


_IN_SERVICE = (Health.HEALTHY, Health.SUSPECT)
STALE_MISSES = 3
"""Polls without a load report after which the last report counts as stale."""
UNCHANGED_S = 60.0
"""Time after which a report that does not change while requests run counts as stale."""
NO_LOAD_REPORT = "it reports no load; the router places by its own leases"
UNCHANGED_REPORT = f"its load report has not changed for {UNCHANGED_S:.0f} s; the router places by its own leases"
NO_KV_EVENTS = "it sends no KV events; the router learns its cache contents from its responses"
MAX_ANSWERS_WITHOUT_KV = 16
"""Responses to computed prompts without a KV event after which the events count as lost."""
MIN_COMPUTED_TOKENS = 256
"""Least computed tokens of a prompt that counts for this, because fewer may not fill a page."""


class Replica(msgspec.Struct, eq=False):
    """The mutable state of one replica, which `Fleet` owns. Load counts from the grant, not from the stream's start.

    `headroom_tokens`, the KV tokens that it could still take, are: free tokens at the last poll − remaining growth of
    the leases known at that poll − tokens of the leases granted since.
    """

    id: str
    pool: str = ""
    slot: int = -1
    """Its number in the pool's prefix index."""
    counted: bool = False
    """Whether its pool counts it as usable."""
    counted_idle: bool = False
    """Whether its pool counts it as idle."""
    at_free: int = -1
    """Its index in the pool's list of free replicas; -1 if it is not in the list."""
    url: str = ""
    driver: str = ""
    weight: float = 0.0
    speculation: bool = False
    """Whether it was started with speculative decoding."""
    preference: float = 1.0
    """Factor on its weight in placement: less than 1 while its pool prefers the other variant."""
    context_tokens: int = 0
    """Longest prompt and response together; 0 for the model's limit."""
    bootstrap_port: int = 0
    """Port of a prefill engine; 0 if it is not one."""
    hardware: str = ""
    """Its hardware, for people; empty if unknown."""
    ceiling: int = 0
    """Its pool's `max_concurrency`; 0 for none."""
    unreported: int = 0
    """Limit on its leases if neither the pool nor the replica sets one and none is learnt."""
    limit: ConcurrencyLimit | None = None
    """Its learnt limit; None if none is learnt."""
    wanted: bool = False
    """Whether it is part of the desired state. If not, it is only kept until its leases have ended."""
    draining: bool = False
    """Whether an operator has taken it out of use, so that it gets no new leases."""
    health: Health = Health.UNKNOWN
    healthy_since: float = 0.0
    """Time at which it last became healthy."""
    detail: str = "not polled yet"
    failures: int = 0
    """Number of polls that failed in a row."""
    accusers: set[str] = set()
    """Organizations for which it has had a fault since the last poll."""
    breaker: Breaker = msgspec.field(default_factory=Breaker)
    trials: set[str] = set()
    """Organizations with a lease that was granted as a trial of the breaker, one for each."""
    probing: bool = False
    """Whether it is generating a token for the router itself."""
    probe_asked_at: float = float("-inf")
    """Time of the last generation probe."""
    probe_expected_s: float = 0.0
    """Expected duration of that probe on an average engine with the same work ahead; 0 if the probe reveals nothing
    about the speed."""
    slow_probes: int = 0
    """Number of probes in a row that took far too long."""
    answered_at: float = 0.0
    """Time of its last response: a first token, or the end of a complete one."""
    load: Load = Load()
    load_misses: int = 0
    """Number of polls in a row without a valid load report, for an engine that has sent one before."""
    quiet_polls: int = 0
    """Number of polls in a row with nothing new to report while none of our requests ran."""
    reported: tuple[int, int, int] | None = None
    """Running requests, waiting requests and used tokens of its last report; None without a report."""
    reported_at: float = 0.0
    """Time of the last change of that report, or of a poll at which nothing ran."""
    unchanged: bool = False
    """Whether the router ignores its load report because the report did not change."""
    follows_kv: bool = False
    """Whether the router follows its KV events."""
    answers_without_kv: int = 0
    """Number of responses to computed prompts since its last KV event."""
    foreign: int = 0
    """Requests that the engine reported beyond our own leases at the last poll: requests of other clients, or of
    forgotten leases."""
    leases: int = 0
    unwaited: int = 0
    """Background requests among the leases, which take no slot from others."""
    live: dict[tuple[str, str], LiveLease] = {}
    """Leases by gateway and lease id."""
    prefilling: dict[tuple[str, str], LiveLease] = {}
    """Leases without a first token, in the order of their grants."""
    prefill_tokens: int = 0
    """Prompt tokens of those leases, without expected cache hits."""
    prefill_pairs: float = 0.0
    """The same in attention pairs; see `latency_model.pairs_of`."""
    progress_at: float = 0.0
    """Time of its last first token, or of the end of its last lease without one."""
    moved_at: float = 0.0
    """Time at which a poll last showed a change of its held tokens: it computes, however long a first token takes."""
    peak: int = 0
    """Most leases held at once since the last poll, so that a report sent while some of them ended does not count as
    foreign load."""
    tokens: int = 0
    """Upper bound of the tokens that the live leases hold, in prompts and outputs."""
    ratio: Slowness = msgspec.field(default_factory=Slowness)
    fill: float = 1.0
    """Assumed contents of its cache, relative to its reported KV capacity, or to the setting if it reports none; learnt
    from `cached_tokens`. Above 1, it also keeps prefixes elsewhere, or reports too little."""
    adapters: HeldAdapters = msgspec.field(default_factory=HeldAdapters)
    retractions: int | None = None
    """Total number of requests that the engine reported as evicted from memory; None if not polled yet."""
    _kv_free: int = 0
    _kv_growth: int = 0
    _kv_since: int = 0
    worked_s: float = 0.0
    """Total granted prefill time of prompts with a first token."""
    chosen: int = 0
    """Number of the last decision that chose it; ties are broken towards the replica that was chosen least recently."""

    @property
    def pull(self) -> float:
        """The replica's weight in placement."""
        return self.weight * self.preference

    @property
    def usable(self) -> bool:
        """Whether it may get leases now, by health, weight, draining and breaker."""
        return self._in_use and self.health in _IN_SERVICE and not self.breaker.open

    @property
    def in_words(self) -> str:
        """The reason why it is not usable, in a word or two, or `healthy`; never contains the address."""
        if self.draining:
            return "draining"
        if self.breaker.state.value != "closed":
            return f"breaker {self.breaker.state.value}"
        return self.health.value if self.weight or self.health is not Health.HEALTHY else "drained"

    @property
    def learnt(self) -> ConcurrencyLimit | None:
        """The learnt limit, if the replica reports no capacity."""
        return None if self.load.capacity_tokens or self.load.max_running else self.limit

    @property
    def unknown(self) -> bool:
        """Whether neither the replica nor its pool states a capacity. It may be one engine or a hundred, and its
        handling of concurrent prompts is unknown."""
        return not self.ceiling and self.learnt is not None

    @property
    def max_concurrency(self) -> int:
        """Most leases that it may have, without background work."""
        learnt = self.learnt
        return self.ceiling or self.load.max_running or self.unreported if learnt is None else learnt.places

    @property
    def limited_by(self) -> str:
        """The reason for `max_concurrency`, in a few words."""
        return self.limit_and_why()[1]

    def limit_and_why(self) -> tuple[int, str]:
        """`max_concurrency` and `limited_by`, for callers that need both for many replicas."""
        learnt = self.learnt
        if learnt is not None:
            return learnt.places, f"measured: {learnt.move.sentence}"
        if self.ceiling:
            return self.ceiling, "set by the pool's max_concurrency"
        if self.load.max_running:
            return self.load.max_running, "reported by the engine"
        return self.unreported, "set by router.concurrency"

    @property
    def free(self) -> bool:
        """Whether it is usable and has a free slot."""
        if len(self.trials) >= TRIALS_AT_ONCE and self.breaker.half_open:
            return False
        return self.leases - self.unwaited < self.max_concurrency and self.usable

    def bars(self, organization_id: str) -> Reason | None:
        """The reason why this organization, unlike others, has to wait for the replica; None if it may use it."""
        if organization_id in self.accusers:
            return Reason.SUSPECTED
        if self.breaker.half_open and organization_id in self.trials:
            return Reason.HALF_OPEN
        return None

    @property
    def drained(self) -> bool:
        """Whether an operator has taken it out of use or given it no share of the load, regardless of its health."""
        return self.wanted and (self.draining or not self.weight)

    @property
    def hopeful(self) -> bool:
        """Whether a request may wait for it: it is usable, or a poll or its breaker will decide soon."""
        return self._in_use and self.health is not Health.UNHEALTHY

    @property
    def _in_use(self) -> bool:
        return self.wanted and self.weight > 0 and not self.draining

    def suits(self, ask: LeaseRequest) -> bool:
        """Whether it could serve the request if it were free: its context holds the prompt and the longest response."""
        tokens = ask.prompt_tokens + ask.max_output_tokens
        return self.id not in ask.excluded_replicas and (not self.context_tokens or tokens <= self.context_tokens)

    @property
    def load_is_stale(self) -> bool:
        """Whether its load reports are missing or do not change, so that the router places by its own leases."""
        return self.load_misses >= STALE_MISSES

    @property
    def load_lost(self) -> str:
        """A sentence on the loss of its load reports; empty if they arrive."""
        if not self.load_is_stale:
            return ""
        return UNCHANGED_REPORT if self.unchanged else NO_LOAD_REPORT

    @property
    def lost(self) -> tuple[str, ...]:
        """A sentence for each kind of lost report."""
        return tuple(loss for loss in (self.load_lost, NO_KV_EVENTS if self.kv_is_silent else "") if loss)

    @property
    def kv_is_silent(self) -> bool:
        """Whether it computes prompts without KV events, so that only cached tokens correct the router's index."""
        return self.follows_kv and self.answers_without_kv >= MAX_ANSWERS_WITHOUT_KV

    @property
    def decoding(self) -> int:
        """Number of leases after their first token, plus requests of other clients."""
        return self.leases - len(self.prefilling) + self.foreign

    def computed_s(self, now: float) -> float:
        """Prefill time that it has spent so far, estimated between two first tokens."""
        if not self.prefilling:
            return self.worked_s
        head = next(iter(self.prefilling.values()))
        return self.worked_s + min(max(now - max(head.since, self.progress_at), 0.0), head.work_s)

    @property
    def headroom_tokens(self) -> int | None:
        """KV tokens that it could still take; None if it reports no capacity."""
        if not self.load.capacity_tokens:
            return None
        return self._kv_free - self._kv_growth - self._kv_since

    def answer_tokens(self, expected_tokens: int, max_output_tokens: int) -> int:
        """Tokens counted for a response: the expected tokens, or the tokens that the engine reserves if they are more.
        The engine does not start a request for which it has fewer free tokens."""
        return max(expected_tokens, int(self.load.output_reserve * max_output_tokens))

    @property
    def kv_used_ratio(self) -> float | None:
        """Share of its KV memory that running requests hold, by its last report; None if it reports no capacity or its
        reports are lost."""
        load = self.load
        return load.used_tokens / load.capacity_tokens if load.capacity_tokens and not self.load_is_stale else None

    def engine(self, engine_model: str) -> Engine:
        """The data that a gateway needs to send a request to the replica."""
        return Engine(self.id, self.url, self.driver, engine_model, self.pool, self.bootstrap_port)

    def hold(self, key: tuple[str, str], live: LiveLease) -> None:
        """Count a granted lease. The decision has already taken its adapter."""
        self.live[key] = live
        self.leases += 1
        self.unwaited += live.unwaited
        if live.trial and live.ask is not None:
            self.trials.add(live.ask.organization_id)
        self.peak = max(self.peak, self.leases)
        self.tokens += live.tokens
        self._kv_since += live.prompt_tokens + live.answer_tokens
        if live.waits_for_first_token:
            self.prefilling[key] = live
            self.prefill_tokens += live.uncached_tokens
            self.prefill_pairs += live.pairs

    def began(self, key: tuple[str, str], now: float) -> None:
        """Note that a lease's first token has arrived, or will not."""
        live = self.prefilling.pop(key, None)
        if live is not None:
            self.prefill_tokens -= live.uncached_tokens
            self.prefill_pairs = self.prefill_pairs - live.pairs if self.prefilling else 0.0
            self.progress_at = now

    def drop(self, key: tuple[str, str], now: float) -> None:
        """Stop counting a lease and free its tokens, whether a poll reported them or not."""
        self.began(key, now)
        live = self.live.pop(key)
        if live.adapter:
            self.adapters.give(live.adapter, now)
        self.leases -= 1
        self.unwaited -= live.unwaited
        if live.trial and live.ask is not None:
            self.trials.discard(live.ask.organization_id)
        self.tokens -= live.tokens
        if live.polled:
            self._kv_growth -= live.answer_left
            self._kv_since -= live.uncached_tokens + live.answer_tokens - live.answer_left
        else:
            self._kv_since -= live.prompt_tokens + live.answer_tokens

    def probed(
        self,
        healthy: bool,
        detail: str,
        load: Load | None,
        load_failed: bool,
        failure_threshold: int,
        now: float,
        token_s: float,
    ) -> None:
        """Process one poll. One success makes the replica healthy. A healthy replica becomes unhealthy at the
        threshold; in any other state, at the first failure.

        load_failed: see `ReplicaPolled`. token_s: the pool's time per token, to estimate the progress of live
        responses.
        """
        self.accusers.clear()
        if healthy:
            if self.health in (Health.UNKNOWN, Health.UNHEALTHY):
                self.healthy_since = now
            self.health, self.failures, self.detail = Health.HEALTHY, 0, detail
            if load is not None and self._is_news(load, now):
                if load.used_tokens != self.load.used_tokens:
                    self.moved_at = now
                self.load, self.load_misses, self.quiet_polls, self.unchanged = load, 0, 0, False
                self.foreign = max(0, load.running + load.waiting - self.peak)
                self.peak = self.leases
                self._polled_memory(load, now, token_s)
            elif load is not None:
                self.load_misses, self.unchanged = STALE_MISSES, True
                self._forget_report()
            elif load_failed or self._answering:
                self.missed_report()
            else:
                self._was_quiet()
            return
        self.failures += 1
        self.detail = detail
        if self.health is not Health.HEALTHY or self.failures >= failure_threshold:
            self.health = Health.UNHEALTHY
            self.forget_reports()

    @property
    def _answering(self) -> bool:
        """Whether one of our requests has had its first token."""
        return self.leases > len(self.prefilling)

    def _is_news(self, load: Load, now: float) -> bool:
        """Whether a report is current, because used tokens change with every step."""
        counts = load.running, load.waiting, load.used_tokens
        if counts != self.reported or not (load.running or load.waiting or self._answering):
            self.reported, self.reported_at = counts, now
        return not load.capacity_tokens or now - self.reported_at < UNCHANGED_S

    def missed_report(self) -> None:
        """Count a poll without a load report. After STALE_MISSES of them, the last report counts as stale."""
        if self.load == Load():
            return  # it has never reported a load
        self.load_misses += 1
        self.quiet_polls = 0
        if self.load_misses == STALE_MISSES:
            self._forget_report()

    def _was_quiet(self) -> None:
        """Count a poll with nothing new to report while none of our requests ran. After STALE_MISSES of them, no
        request is assumed to run."""
        self.load_misses = 0
        self.quiet_polls += 1
        if self.quiet_polls == STALE_MISSES and self.load != Load():
            self._forget_report()

    def _forget_report(self) -> None:
        """Assume that the engine runs only our leases, with the memory and the slots that it reported."""
        known = self.load
        self.load = Load(
            capacity_tokens=known.capacity_tokens,
            max_running=known.max_running,
            step_tokens=known.step_tokens,
            share_behind=known.share_behind,
            output_reserve=known.output_reserve,
            retracted=known.retracted,
        )
        self.foreign = 0
        self._kv_free, self._kv_growth, self._kv_since = known.capacity_tokens, 0, 0
        for live in self.live.values():
            live.polled = False
            self._kv_since += live.prompt_tokens + live.answer_tokens

    def forget_reports(self) -> None:
        """Drop the reports of an engine that is dead or was replaced."""
        self.load, self.foreign, self.load_misses, self.quiet_polls = Load(), 0, 0, 0
        self.reported, self.reported_at, self.unchanged, self.answers_without_kv = None, 0.0, False, 0

    def _polled_memory(self, load: Load, now: float, token_s: float) -> None:
        """Update the memory from a report, which includes only leases after their first token."""
        self._kv_free = max(load.capacity_tokens - load.used_tokens, 0)
        self._kv_growth = self._kv_since = 0
        for live in self.live.values():
            live.polled = not live.waits_for_first_token
            if live.polled:
                generated = (now - live.first_token_at) / token_s if token_s > 0 else 0.0
                live.answer_left = max(0, live.answer_tokens - int(generated))
                self._kv_growth += live.answer_left
            else:
                self._kv_since += live.prompt_tokens + live.answer_tokens
        # tokens reserved for other clients' requests; reservations for ours are counted with their leases
        self._kv_free -= max(load.promised_tokens - self._kv_growth - self._kv_since, 0)

    def retracted(self, total: int) -> int:
        """Number of requests that it evicted from memory since the last poll, ignoring those before the first poll."""
        before, self.retractions = self.retractions, total
        if before is None:
            return 0
        return total - before if total >= before else total  # the count restarts from 0 with the engine

    def suspected(self, organization_id: str, detail: str) -> bool:
        """Note a fault that a gateway reported. Returns True if a poll is needed."""
        if self.health in _IN_SERVICE:
            self.accusers.add(organization_id)
        if self.health is not Health.HEALTHY:
            return False
        self.health, self.detail = Health.SUSPECT, detail
        return True
