"""The router's core, which turns events into decisions. It has no I/O, no clock of its own and no randomness.

    acquire ─► model ─► pool ─► policy chooses among the replicas that can take it ─► Granted
                         └────► none can: wait in the pool's fair queue until the deadline ─► Granted | Refused

This file keeps gateways and their leases; `placement` places requests, and `learning` learns from reports.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from contracts.errors import RouterUnavailable
from contracts.lease import Engine, HeldLease, LeaseEnd, prefill_id
from contracts.usage import Finish, Usage
from router.config import RouterConfig
from router.core import kv_changes, learning, outliers, unread
from router.core.decisions import (
    Decision,
    Disconnect,
    Granted,
    PollNow,
    ProbeGeneration,
    Refused,
    ReplayKvEvents,
    Welcomed,
)
from router.core.events import (
    Acquire,
    Cancel,
    DrainReplica,
    Event,
    FirstToken,
    GatewayConnected,
    GatewayDisconnected,
    GenerationProbed,
    KvBatch,
    Probe,
    Release,
    ReplicaPolled,
    StatePublished,
    Tick,
)
from router.core.fair_queue import YIELDING_LENGTH, account_of
from router.core.fleet import Fleet
from router.core.kv_mirror import UNREADABLE, KvMirror
from router.core.placement import Placer
from router.core.policy import Policy
from router.core.pool import PoolState
from router.core.reasons import Reason
from router.core.record import RecordBook
from router.core.replica import MIN_COMPUTED_TOKENS, Health, Replica
from router.core.split_costs import saw_pair
from router.core.state import LiveLease, QueuedRequest, Session

OVER_EPOCHS_LIMIT = 4_096
STARTING_RETRY_S = 1.0
PROBE_PAUSE_S = 1.0
"""Least time between two generation probes of an engine: requests that fail on purpose must not keep it busy."""
MAX_UNDERESTIMATED = 8
"""Largest accepted multiple of a prompt's estimated tokens, for prompts beyond the model's context."""
LATE_REPORT_S = 0.25
"""Delay from which a first token's time is taken from the gateway: its report was lost and sent again."""
PROBE_LOST_S = 60.0
"""Time after which a generation probe without an outcome is sent again."""


class Dispatcher:
    """Every gateway, lease and replica, and the rules between them.

    All events go through `handle`. now: monotonic seconds, which may stand still but must not run backwards.
    """

    def __init__(self, config: RouterConfig, policy: Policy) -> None:
        self.config = config
        self.policy = policy
        self.fleet = Fleet(config)
        self.records = RecordBook(config.explain_records, config.explain_share)
        self.placer = Placer(config, policy, self.fleet, self.records)
        self.sessions: dict[str, Session] = {}
        """Sessions by gateway id: a gateway has one epoch at a time."""
        self.connections: dict[int, Session] = {}
        self._over_epochs: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._mirrors: dict[str, KvMirror] = {}
        """Mirrors of replicas that publish KV events."""
        self._resting: dict[str, Replica] = {}
        """Replicas whose breaker is open."""
        self._avoided: list[tuple[float, str, str]] = []
        """Heap of the times at which an organization's avoidance of a replica ends."""
        self._handlers: dict[type, Callable[[Any, float, list[Decision]], None]] = {
            GatewayConnected: self._connected,
            GatewayDisconnected: self._disconnected,
            Acquire: self._acquire,
            Cancel: self._cancel,
            FirstToken: self._first_token,
            Release: self._release,
            StatePublished: self._published,
            ReplicaPolled: self._probed,
            GenerationProbed: self._generation_probed,
            KvBatch: self._kv_events,
            DrainReplica: self._drain,
            Tick: self._tick,
        }

    def handle(self, event: Event, now: float) -> list[Decision]:
        """Process one event. Returns the decisions, in order."""
        out: list[Decision] = []
        # first, because ticks can be late (after a paused process) and expired requests must not get slots that this
        # event frees
        self._refuse_overdue(now, out)
        self._handlers[type(event)](event, now, out)
        return out

    def next_wakeup(self) -> float | None:
        """The time at which a Tick is due if nothing else happens; None if never."""
        deadlines = self.placer.deadlines
        while deadlines and not deadlines[0][2].pool:
            heapq.heappop(deadlines)
        times = [session.grace_ends_at for session in self.sessions.values() if session.grace_ends_at is not None]
        times += [replica.breaker.opens_again_at for replica in self._resting.values()]
        if self._avoided:
            times.append(self._avoided[0][0])
        if deadlines:
            times.append(deadlines[0][0])
            times += [pool.open_at for pool in self.fleet.pools.values() if len(pool.queue)]
        return min(times, default=None)

    # gateways

    def _connected(self, event: GatewayConnected, now: float, out: list[Decision]) -> None:
        session = self.sessions.get(event.gateway_id)
        if (event.gateway_id, event.epoch) in self._over_epochs:
            out.append(Disconnect(event.connection, "a newer process of this gateway has taken over"))
            return
        if session is not None and session.epoch != event.epoch:
            if session.connection is not None:
                out.append(Disconnect(session.connection, "a newer process of this gateway has taken over"))
            self._end_session(session, now, out)
            self._over_epochs[session.gateway_id, session.epoch] = None
            if len(self._over_epochs) > OVER_EPOCHS_LIMIT:
                self._over_epochs.popitem(last=False)
            session = None
        if session is None:
            session = self.sessions[event.gateway_id] = Session(event.gateway_id, event.epoch)
        elif session.connection is not None:
            if session.connection >= event.connection:
                return  # a copy of a hello that was already processed
            out.append(Disconnect(session.connection, "this gateway has opened a newer stream"))
            self._detach(session)
        session.connection = event.connection
        session.grace_ends_at = None
        self.connections[event.connection] = session
        out.append(Welcomed(event.connection, self.fleet.version))
        self._reconcile(session, event.leases, now, out)

    def _reconcile(self, session: Session, named: tuple[HeldLease, ...], now: float, out: list[Decision]) -> None:
        """Reconcile with a hello: leases that it omits have ended, and unknown leases are adopted."""
        by_id = {lease.lease_id: lease for lease in named}
        pools: set[str] = set()
        for live in list(session.leases.values()):
            if live.lease_id not in session.leases:
                continue  # the prefill of a lease that has just been dropped
            held = by_id.get(live.lease_id)
            if held is None or held.replica_id != live.replica_id:
                pools.add(self.placer.drop(session, live, now))
        for held in by_id.values():
            if held.lease_id not in session.leases and held.lease_id not in session.ended:
                tokens = held.prompt_tokens + held.max_output_tokens
                live = LiveLease(held.lease_id, held.replica_id, tokens, now, None, prompt_tokens=held.prompt_tokens)
                live.growth_tokens = live.answer_tokens = live.answer_left = held.max_output_tokens
                live.uncached_tokens = held.prompt_tokens
                live.first_token_at = now
                self.placer.hold(session, live, now)
        self._serve(pools, now, out)

    def _disconnected(self, event: GatewayDisconnected, now: float, out: list[Decision]) -> None:
        session = self.connections.get(event.connection)
        if session is None:
            return
        self._detach(session)
        session.grace_ends_at = now + self.config.grace_s

    def _detach(self, session: Session) -> None:
        """Drop the stream and its waiting requests, whose answers could not be sent; the gateway sends them again."""
        if session.connection is not None:
            del self.connections[session.connection]
            session.connection = None
        for waiting in list(session.waiting.values()):
            self.placer.unqueue(waiting)

    def _end_session(self, session: Session, now: float, out: list[Decision]) -> None:
        self._detach(session)
        del self.sessions[session.gateway_id]
        pools: set[str] = set()
        while session.leases:
            pools.add(self.placer.drop(session, next(iter(session.leases.values())), now))
        self._serve(pools, now, out)

    def _serve(self, pools: set[str], now: float, out: list[Decision]) -> None:
        for name in pools:
            self.placer.serve(self.fleet.pools.get(name), now, out)

    # leases

    def _acquire(self, event: Acquire, now: float, out: list[Decision]) -> None:
        session = self.connections.get(event.connection)
        ask = event.ask
        if session is None or ask.lease_id in session.ended or ask.lease_id in session.waiting:
            return
        live = session.leases.get(ask.lease_id)
        if live is not None:
            if live.lease is not None:
                out.append(Granted(event.connection, live.lease))
            return
        if self.fleet.state is None:
            reason = "The router has just started and does not know its engines yet."
            code, cause = RouterUnavailable.code, Reason.STARTING
            out.append(Refused(event.connection, ask.lease_id, code, reason, STARTING_RETRY_S, cause))
            return
        model = self.fleet.model(ask.model)
        if model is None or not self.fleet.has_pool(ask.pool):
            self.placer.refuse_unknown(event.connection, ask, out)
            return
        self.placer.place_or_queue(QueuedRequest(session, ask, model, now), now, out)

    def _cancel(self, event: Cancel, now: float, out: list[Decision]) -> None:
        session = self.connections.get(event.connection)
        if session is None:
            return
        session.remember_ended(event.lease_id)
        waiting = session.waiting.get(event.lease_id)
        if waiting is not None:
            self.placer.unqueue(waiting)
            return
        live = session.leases.get(event.lease_id)
        if live is not None:
            self.placer.serve(self.fleet.pools.get(self.placer.drop(session, live, now)), now, out)

    def _first_token(self, event: FirstToken, now: float, out: list[Decision]) -> None:
        session = self.connections.get(event.connection)
        live = None if session is None else session.leases.get(event.lease_id)
        if session is None or live is None:
            return
        prefill = session.leases.get(prefill_id(live.lease_id))
        if not live.waits_for_first_token:
            if prefill is not None:  # both were adopted from a hello
                self._serve({self.placer.drop(session, prefill, now)}, now, out)
            return
        ttft_s = _ttft_s(event, live, now)
        live.waits_for_first_token = False
        live.first_token_at = _began_at(live, ttft_s, now)
        replica = self.fleet.held(live.replica_id)
        replica.answers_without_kv += live.uncached_tokens >= MIN_COMPUTED_TOKENS
        replica.began((session.gateway_id, live.lease_id), now)
        replica.adapters.began(live.adapter)
        unread.began(replica, live)
        replica.answered_at = now
        replica.worked_s += live.work_s
        live.worked_before_s = replica.worked_s
        pool = self._pool_of(replica)
        if prefill is not None:
            self._prefilled(session, prefill, event, now, out)
        if pool is None or live.ask is None:
            return
        if pool.links.prefill:
            live.ttft_s = ttft_s  # the latency model is for prompts, which other engines compute
        else:
            learning.first_token(pool, replica, live, ttft_s, event.cached_tokens, now)
        pool.refresh(replica)
        self.records.began(live.ask.request_id, live.lease_id, ttft_s)
        self._judge_pace(pool, replica, now, out)
        self.placer.serve(pool, now, out)

    def _prefilled(self, session: Session, live: LiveLease, event: FirstToken, now: float, out: list[Decision]) -> None:
        """Free the slot of a pair's prefill engine, which has finished its part, including the transfer."""
        live.waits_for_first_token = False
        replica = self.fleet.held(live.replica_id)
        replica.began((session.gateway_id, live.lease_id), now)
        unread.began(replica, live)
        replica.answered_at = now
        replica.worked_s += live.work_s
        replica.breaker.answered()
        pool = self._pool_of(replica)
        if pool is not None and live.ask is not None:
            pool.avoidance.answered(_organization_of(live), replica.id)
            ttft_s = _ttft_s(event, live, now)
            if (whole := self.fleet.shared_by(pool)) is not None:
                saw_pair(whole, live, ttft_s, event.cached_tokens)
            learning.first_token(pool, replica, live, ttft_s, event.cached_tokens, now)
        self._serve({self.placer.drop(session, live, now)}, now, out)

    def _release(self, event: Release, now: float, out: list[Decision]) -> None:
        session = self.connections.get(event.connection)
        if session is None:
            return
        session.remember_ended(event.end.lease_id)
        live = session.leases.get(event.end.lease_id)
        if live is None:
            return
        end = self._believed(event.end, live)
        replica = self.fleet.held(live.replica_id)
        pool = self._pool_of(replica)
        if end.adapter_missing:
            replica.adapters.missing(live.adapter)
        prefill = session.leases.get(prefill_id(live.lease_id))
        if end.prefill_fault and prefill is not None:
            engine = None if live.lease is None else live.lease.prefill
            self._failed(self.fleet.held(prefill.replica_id), prefill, engine, now, out)
        elif end.engine_fault:
            self._failed(replica, live, None if live.lease is None else live.lease.engine, now, out)
        elif end.finish is Finish.COMPLETE:
            replica.answered_at = now
            replica.breaker.answered()
            if pool is not None:
                pool.avoidance.answered(_organization_of(live), replica.id)
        if pool is not None:
            if live.lease is not None and live.pool and end.finish in (Finish.COMPLETE, Finish.CLIENT_GONE):
                waits = pool.yielding_waits if live.length_class == YIELDING_LENGTH else pool.wait_estimator
                waits.ended(now - live.since)
            if live.lease is None or live.lease.engine.url == replica.url:  # else another engine has replaced it
                learning.limit(replica, live, end, now)
            learning.ended(pool, replica, live, end, now, self.config.prefix_blocks_per_replica)
            if live.ask is not None and live.pool == pool.name:
                uncached = end.usage.prompt_tokens - end.usage.cached_tokens
                self._settle(pool, live, uncached, end.usage.completion_tokens, now)
        if live.ask is not None:
            self.records.ended(live.ask.request_id, live.lease_id, end.usage.cached_tokens, end.usage.completion_tokens)
        self.placer.drop(session, live, now, end.usage.prompt_tokens)
        if pool is not None:
            pool.refresh(replica)
        self.placer.serve(pool, now, out)

    def _believed(self, end: LeaseEnd, live: LiveLease) -> LeaseEnd:
        """The end of a lease with its counts limited to possible values, because tenants are charged by the engine's
        counts."""
        ask, usage = live.ask, end.usage
        model = None if ask is None else self.fleet.model(ask.model)
        limit = usage.prompt_tokens
        if ask is not None:
            limit = max(MAX_UNDERESTIMATED * ask.prompt_tokens, 0 if model is None else model.context_tokens)
        prompt_tokens = min(usage.prompt_tokens, limit)
        cached_tokens = min(usage.cached_tokens, prompt_tokens)
        completion_tokens = usage.completion_tokens
        if ask is not None:
            completion_tokens = min(completion_tokens, ask.max_output_tokens)
        counts = prompt_tokens, completion_tokens, cached_tokens
        if counts == (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens):
            return end
        return msgspec.structs.replace(end, usage=Usage(*counts))

    def _failed(
        self, replica: Replica, live: LiveLease, engine: Engine | None, now: float, out: list[Decision]
    ) -> None:
        """Record that an engine failed a request. Other tenants and a probe decide whether the engine is at fault.
        engine: as it was granted; None if that is not known."""
        if engine is not None and engine.url != replica.url:
            return  # another engine has replaced it under its name
        organization_id, pool = _organization_of(live), self._pool_of(replica)
        if replica.suspected(organization_id, "a gateway reported a fault; being polled"):
            out.append(PollNow(replica.id))
        if replica.breaker.failed(organization_id, now):
            self._resting[replica.id] = replica
        if pool is None:
            return
        ends_at = pool.avoidance.failed(organization_id, replica.id, now)
        if ends_at is not None:
            heapq.heappush(self._avoided, (ends_at, replica.id, organization_id))
        if replica.breaker.half_open or replica.id in pool.avoidance.of(organization_id):
            self._probe_generation(pool, replica, now, out)

    def _probe_generation(self, pool: PoolState, replica: Replica, now: float, out: list[Decision]) -> None:
        """Send a generation probe to the engine, unless one is in flight or was sent recently."""
        served = self.fleet.served_by(pool.name)
        if served is None or now - replica.probe_asked_at < (PROBE_LOST_S if replica.probing else PROBE_PAUSE_S):
            return
        replica.probing, replica.probe_asked_at = True, now
        replica.probe_expected_s = outliers.probe_expected_s(pool, replica, now)
        out.append(ProbeGeneration(replica.id, *served))

    def _settle(
        self, pool: PoolState, live: LiveLease, uncached_tokens: int, completion_tokens: int, now: float
    ) -> None:
        """Correct the tenant's charge from the expected to the actual tokens."""
        assert live.ask is not None
        tenant = pool.queue.tenant(account_of(live.ask))
        prompt = uncached_tokens - live.uncached_tokens if pool.cache_reports.known else 0
        output = completion_tokens - live.growth_tokens
        pool.queue.charge(tenant, live.length_class, prompt, output, now, live.ask.project_id)

    def _pool_of(self, replica: Replica) -> PoolState | None:
        """The pool of a replica; None if the replica has left the desired state."""
        return self.fleet.pools.get(replica.pool) if replica.slot >= 0 else None

    # fleet

    def _published(self, event: StatePublished, now: float, out: list[Decision]) -> None:
        if event.state.version <= self.fleet.version:
            return
        queued = [waiting for pool in self.fleet.pools.values() for waiting in pool.queue]
        for waiting in queued:
            self.placer.unqueue(waiting)
        self.fleet.apply(event.state)
        self._mirrors = {name: mirror for name, mirror in self._mirrors.items() if name in self.fleet.replicas}
        self._resting = {name: replica for name, replica in self.fleet.replicas.items() if replica.breaker.open}
        # all waiting requests are placed again, in order of arrival: models may have moved, and pools shrunk
        for waiting in sorted(queued, key=lambda each: (each.asked_at, each.number)):
            connection = waiting.session.connection
            model = self.fleet.model(waiting.ask.model)
            if model is not None and self.fleet.has_pool(waiting.ask.pool):
                self.placer.place_or_queue(waiting.again(model), now, out)
            elif connection is not None:
                self.placer.refuse_unknown(connection, waiting.ask, out)

    def _probed(self, event: ReplicaPolled, now: float, out: list[Decision]) -> None:
        replica = self.fleet.replicas.get(event.replica_id)
        if replica is None or not replica.wanted:
            return
        pool = self.fleet.pools[replica.pool]
        if not event.asked:
            replica.missed_report()
            self._reconsider(pool, replica, now, out)
            return
        previous_health = replica.health
        running = replica.decoding
        token_s = replica.ratio.value * pool.latency_model.token_s(running)
        replica.probed(
            event.healthy, event.detail, event.load, event.load_failed, self.config.failure_threshold, now, token_s
        )
        if event.load is not None:
            pool.cache_reports.retracted(replica.retracted(event.load.retracted) + event.load.retracted_since)
            pool.cache_reports.draft_tokens += event.load.draft_tokens
            pool.cache_reports.accepted_draft_tokens += min(event.load.accepted_draft_tokens, event.load.draft_tokens)
        pool.govern(now)
        if pool.governor is not None:
            pool.foreign = sum(each.foreign for each in pool.replicas if each.usable)
        if replica.health is Health.UNHEALTHY and previous_health is not Health.UNHEALTHY:
            # an engine that died restarts with an empty cache; the cache of one that was only unreachable is learnt
            # again from its first responses
            pool.index.forget(replica.slot)
            replica.adapters.forget()
            self._mirrors.pop(replica.id, None)
        self._reconsider(pool, replica, now, out)

    def _reconsider(self, pool: PoolState, replica: Replica, now: float, out: list[Decision]) -> None:
        """Serve waiting requests after a replica's state has changed, or refuse them if no replica is left."""
        pool.refresh(replica)
        if not replica.hopeful:
            served = self.fleet.pools[pool.links.decode] if pool.links.decode else pool
            for waiting in served.queue:
                if not self.placer.hopeful(served, waiting.ask):
                    self.placer.unqueue(waiting)
                    if served.links.split or served.links.whole:  # the other side may have engines
                        self.placer.place_or_queue(waiting.again(waiting.model), now, out)
                    else:
                        self.placer.refuse_no_engine(served, waiting, now, out)
        # also if it is unusable: organizations that avoided other replicas because of this one stop doing so
        self.placer.serve(pool, now, out)

    def _generation_probed(self, event: GenerationProbed, now: float, out: list[Decision]) -> None:
        replica = self.fleet.replicas.get(event.replica_id)
        pool = None if replica is None else self._pool_of(replica)
        if replica is None or pool is None or not replica.probing:
            return
        replica.probing = False
        outliers.probe_ended(replica, event.probe, now)
        # an engine that answers other requests in the meantime is busy, and its users must not open its breaker
        hangs = event.probe is Probe.LATE and replica.answered_at < replica.probe_asked_at
        if event.probe is Probe.FAILED or hangs:
            if replica.breaker.probed(False, now):
                self._resting[replica.id] = replica
        elif event.probe is Probe.WELL:
            replica.breaker.probed(True, now)
        if outliers.judge(pool, replica, now) is outliers.Verdict.EJECT:
            self._eject(replica, now)
        pool.refresh(replica)
        self.placer.serve(pool, now, out)

    def _drain(self, event: DrainReplica, now: float, out: list[Decision]) -> None:
        replica = self.fleet.replicas.get(event.replica_id)
        if replica is None:
            return
        replica.draining = event.draining
        pool = self._pool_of(replica)
        if pool is not None:
            self._reconsider(pool, replica, now, out)

    def _kv_events(self, event: KvBatch, now: float, out: list[Decision]) -> None:
        replica = self.fleet.replicas.get(event.replica_id)
        pool = None if replica is None else self._pool_of(replica)
        if replica is None or pool is None or self.fleet.state is None:
            return
        mirror = self._mirrors.get(replica.id)
        if mirror is None:
            served = [model.name for model in self.fleet.state.models if model.pool == pool.name]
            wanted = (
                each for declared in self.fleet.state.pools for each in declared.replicas if each.id == replica.id
            )
            replays = any(each.kv_events_replay for each in wanted)
            mirror = self._mirrors[replica.id] = KvMirror(served[0] if served else "", replays)
        before_bytes = mirror.taken_bytes
        try:
            changes, first = mirror.take(event.number, event.payload, event.repeated, replica.adapters.used)
        except UNREADABLE:
            return  # another format, or a truncated message; the index continues without it
        replica.answers_without_kv = 0
        kv_changes.apply(changes, pool.index, replica.slot, mirror.taken_bytes - before_bytes)
        if first is not None:
            out.append(ReplayKvEvents(replica.id, first))

    def _judge_pace(self, pool: PoolState, replica: Replica, now: float, out: list[Decision]) -> None:
        """Check after a first token whether the replica is far too slow."""
        verdict = outliers.judge(pool, replica, now)
        if verdict is outliers.Verdict.EJECT:
            self._eject(replica, now)
            pool.refresh(replica)
        elif verdict is outliers.Verdict.PROBE:
            self._probe_generation(pool, replica, now, out)

    def _eject(self, replica: Replica, now: float) -> None:
        replica.breaker.trip(f"{replica.ratio.value:.0f} times slower than its pool", now)
        replica.ratio.count = replica.slow_probes = 0  # after the pause, only the replica's new behaviour counts
        self._resting[replica.id] = replica

    def _refuse_overdue(self, now: float, out: list[Decision]) -> None:
        deadlines = self.placer.deadlines
        while deadlines and (not deadlines[0][2].pool or deadlines[0][0] <= now):
            waiting = heapq.heappop(deadlines)[2]
            if waiting.pool:
                pool = self.fleet.pools[waiting.pool]
                self.placer.unqueue(waiting)
                self.placer.refuse_late(pool, waiting, now, out)

    def _tick(self, event: Tick, now: float, out: list[Decision]) -> None:
        for replica in list(self._resting.values()):
            if replica.breaker.opens_again_at <= now:
                del self._resting[replica.id]
                replica.breaker.rested()
                pool = self._pool_of(replica)
                if pool is not None:
                    pool.refresh(replica)
                    self._probe_generation(pool, replica, now, out)
                    self.placer.serve(pool, now, out)
        while self._avoided and self._avoided[0][0] <= now:
            _, replica_id, organization_id = heapq.heappop(self._avoided)
            avoided = self.fleet.replicas.get(replica_id)
            pool = None if avoided is None else self._pool_of(avoided)
            if pool is not None:
                pool.avoidance.rested(organization_id, replica_id, now)
                self.placer.serve(pool, now, out)
        for pool in self.fleet.pools.values():
            if pool.open_at <= now:
                self.placer.serve(pool, now, out)
        for session in list(self.sessions.values()):
            if session.grace_ends_at is not None and session.grace_ends_at <= now:
                self._end_session(session, now, out)


def _ttft_s(event: FirstToken, live: LiveLease, now: float) -> float:
    """Seconds from the grant to the first token, by the gateway's measurement, which excludes the report's own transit
    time. A measurement that began before the grant is limited to the lease's age."""
    return min(event.ttft_s, now - live.since) if event.ttft_s > 0 else now - live.since


def _began_at(live: LiveLease, ttft_s: float, now: float) -> float:
    """Time of the first token, whose report may be late. ttft_s: without the time that loading an adapter took."""
    loaded = live.lease is not None and live.lease.load_adapter
    late = now - live.since - ttft_s >= LATE_REPORT_S
    return live.since + ttft_s if late and not loaded else now


def _organization_of(live: LiveLease) -> str:
    """The lease's organization. Leases adopted from a hello have no known organization and count as one."""
    return live.ask.organization_id if live.ask is not None else ""
