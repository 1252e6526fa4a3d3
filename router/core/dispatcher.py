"""The router's core: events in, decisions out. No I/O, no clock of its own, no randomness.

    acquire ─► model ─► pool ─► policy chooses a free replica ─► Granted
                         └────► nothing free: wait in the pool's queue until the deadline ─► Granted | Refused

Invariant after every event: nobody waits who could be placed, so a newcomer never overtakes anyone by being placed.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from contracts.errors import ModelNotFound, NoEngine, Overloaded, RouterUnavailable
from contracts.lease import Ask, Lease
from contracts.usage import Finish
from router.config import RouterConfig
from router.core.decisions import Decision, Disconnect, Granted, ProbeNow, Refused, Welcomed
from router.core.events import (
    Acquire,
    Cancel,
    Event,
    FirstToken,
    GatewayConnected,
    GatewayDisconnected,
    HeldLease,
    Release,
    ReplicaProbed,
    StatePublished,
    Tick,
)
from router.core.fleet import Fleet, PoolState
from router.core.session import LiveLease, Session
from router.core.waiting import Waiting
from router.policies.base import Policy

OVER_EPOCHS_LIMIT = 4_096
STARTING_RETRY_S = 1.0


class Dispatcher:
    """Every gateway, lease and replica, and the rules between them.

    `handle` is the only way in. now: monotonic seconds; it may stand still, it must not run backwards.
    """

    def __init__(self, config: RouterConfig, policy: Policy) -> None:
        self.config = config
        self.policy = policy
        self.fleet = Fleet()
        self.sessions: dict[str, Session] = {}
        """By gateway id: one epoch of a gateway at a time."""
        self.connections: dict[int, Session] = {}
        self._over_epochs: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._deadlines: list[tuple[float, int, Waiting]] = []
        self._decisions = 0
        """Numbers placements and queue entries."""
        self._handlers: dict[type, Callable[[Any, float, list[Decision]], None]] = {
            GatewayConnected: self._connected,
            GatewayDisconnected: self._disconnected,
            Acquire: self._acquire,
            Cancel: self._cancel,
            FirstToken: self._first_token,
            Release: self._release,
            StatePublished: self._published,
            ReplicaProbed: self._probed,
            Tick: self._tick,
        }

    def handle(self, event: Event, now: float) -> list[Decision]:
        """Take in one event; what is to be done about it, in order."""
        out: list[Decision] = []
        self._handlers[type(event)](event, now, out)
        return out

    def next_wakeup(self) -> float | None:
        """When a Tick is due if nothing else happens; None: never."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].pool is None:
            heapq.heappop(deadlines)
        times = [session.grace_ends_at for session in self.sessions.values() if session.grace_ends_at is not None]
        if deadlines:
            times.append(deadlines[0][0])
        return min(times, default=None)

    @property
    def queued(self) -> int:
        """Asks waiting in all pools."""
        return sum(len(pool.queue) for pool in self.fleet.pools.values())

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
                return  # a copy of a hello already heard
            out.append(Disconnect(session.connection, "this gateway has opened a newer stream"))
            self._detach(session)
        session.connection = event.connection
        session.grace_ends_at = None
        self.connections[event.connection] = session
        out.append(Welcomed(event.connection, self.fleet.version))
        self._reconcile(session, event.leases, now, out)

    def _reconcile(self, session: Session, named: tuple[HeldLease, ...], now: float, out: list[Decision]) -> None:
        """The hello is the truth: leases it leaves out are over, leases we did not know are adopted."""
        by_id = {lease.lease_id: lease for lease in named}
        pools: set[str] = set()
        for live in list(session.leases.values()):
            held = by_id.get(live.lease_id)
            if held is None or held.replica_id != live.replica_id:
                pools.add(self._drop(session, live))
        for held in by_id.values():
            if held.lease_id not in session.leases and held.lease_id not in session.ended:
                tokens = held.prompt_tokens + held.max_output_tokens
                self._hold(session, LiveLease(held.lease_id, held.replica_id, tokens, now, None))
        for name in pools:
            self._serve(self.fleet.pools.get(name), now, out)

    def _disconnected(self, event: GatewayDisconnected, now: float, out: list[Decision]) -> None:
        session = self.connections.get(event.connection)
        if session is None:
            return
        self._detach(session)
        session.grace_ends_at = now + self.config.grace_s

    def _detach(self, session: Session) -> None:
        """Forget the stream. Asks go with it: nobody could be told, and the gateway sends them again."""
        if session.connection is not None:
            del self.connections[session.connection]
            session.connection = None
        for waiting in list(session.waiting.values()):
            self._unqueue(waiting)

    def _end_session(self, session: Session, now: float, out: list[Decision]) -> None:
        self._detach(session)
        del self.sessions[session.gateway_id]
        pools = {self._drop(session, live) for live in list(session.leases.values())}
        for name in pools:
            self._serve(self.fleet.pools.get(name), now, out)

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
            out.append(Refused(event.connection, ask.lease_id, RouterUnavailable.code, reason, STARTING_RETRY_S))
            return
        model = self.fleet.model(ask.model)
        if model is None:
            out.append(_unknown_model(event.connection, ask))
            return
        self._place_or_queue(Waiting(session, ask, model, now), now, out)

    def _cancel(self, event: Cancel, now: float, out: list[Decision]) -> None:
        session = self.connections.get(event.connection)
        if session is None:
            return
        session.remember_ended(event.lease_id)
        waiting = session.waiting.get(event.lease_id)
        if waiting is not None:
            self._unqueue(waiting)
            return
        live = session.leases.get(event.lease_id)
        if live is not None:
            self._serve(self.fleet.pools.get(self._drop(session, live)), now, out)

    def _first_token(self, event: FirstToken, now: float, out: list[Decision]) -> None:
        """Nothing to decide yet: the prefix index and the learnt rates will listen here."""

    def _release(self, event: Release, now: float, out: list[Decision]) -> None:
        session = self.connections.get(event.connection)
        if session is None:
            return
        end = event.end
        session.remember_ended(end.lease_id)
        live = session.leases.get(end.lease_id)
        if live is None:
            return
        replica = self.fleet.held(live.replica_id)
        pool = self.fleet.pools.get(replica.pool)
        if end.engine_fault and replica.suspected("a gateway met a fault; being polled"):
            out.append(ProbeNow(replica.id))
        if pool is not None and live.lease is not None and end.finish in (Finish.COMPLETE, Finish.CLIENT_GONE):
            pool.pace.ended(now - live.since)
        self._drop(session, live)
        self._serve(pool, now, out)

    def _hold(self, session: Session, live: LiveLease) -> None:
        session.leases[live.lease_id] = live
        replica = self.fleet.held(live.replica_id)
        replica.leases += 1
        replica.peak = max(replica.peak, replica.leases)
        replica.tokens += live.tokens

    def _drop(self, session: Session, live: LiveLease) -> str:
        """Stop counting a lease; the name of the pool in which a place came free."""
        del session.leases[live.lease_id]
        replica = self.fleet.held(live.replica_id)
        replica.leases -= 1
        replica.tokens -= live.tokens
        self.fleet.forget_if_over(replica)
        return replica.pool

    # placement

    def _place_or_queue(self, waiting: Waiting, now: float, out: list[Decision]) -> None:
        pool = self.fleet.pools[waiting.model.pool]
        if self._place(pool, waiting, now, out):
            return
        if not self._hopeful(pool, waiting.ask):
            self._refuse_no_engine(waiting, out)
        elif len(pool.queue) >= self.config.queue_length:
            self._refuse_overloaded(pool, waiting, "every place is taken and the queue is full", out)
        elif waiting.deadline_at <= now:
            self._refuse_late(pool, waiting, out)
        else:
            waiting.pool = pool
            pool.queue.add(waiting)
            waiting.session.waiting[waiting.ask.lease_id] = waiting
            self._decisions += 1
            heapq.heappush(self._deadlines, (waiting.deadline_at, self._decisions, waiting))

    def _place(self, pool: PoolState, waiting: Waiting, now: float, out: list[Decision]) -> bool:
        """Grant it a replica if one is free for it. It must not be in a queue."""
        ask, session = waiting.ask, waiting.session
        excluded = ask.excluded_replicas
        candidates = [replica for replica in pool.replicas if replica.free and replica.id not in excluded]
        if not candidates or session.connection is None:
            return False
        replica = self.policy.choose(ask, candidates, now)
        self._decisions += 1
        replica.chosen = self._decisions
        engine = replica.engine(waiting.model.engine_model or waiting.model.name)
        lease = Lease(ask.lease_id, engine, now - waiting.asked_at)
        tokens = ask.prompt_tokens + ask.max_output_tokens
        self._hold(session, LiveLease(ask.lease_id, replica.id, tokens, now, lease))
        out.append(Granted(session.connection, lease))
        return True

    def _serve(self, pool: PoolState | None, now: float, out: list[Decision]) -> None:
        """Places may have come free: grant them in order of arrival."""
        if pool is None or not len(pool.queue) or not pool.free:
            return
        for waiting in pool.queue:
            if self._place(pool, waiting, now, out):
                self._unqueue(waiting)
                if not pool.free:
                    return

    def _unqueue(self, waiting: Waiting) -> None:
        if waiting.pool is not None:
            waiting.pool.queue.remove(waiting)
            waiting.pool = None
        waiting.session.waiting.pop(waiting.ask.lease_id, None)

    def _hopeful(self, pool: PoolState, ask: Ask) -> bool:
        """Some replica may take it, now or later."""
        return any(replica.hopeful and replica.id not in ask.excluded_replicas for replica in pool.replicas)

    # refusals

    def _refuse_no_engine(self, waiting: Waiting, out: list[Decision]) -> None:
        connection = waiting.session.connection
        if connection is not None:
            reason = f"No healthy engine serves {waiting.ask.model} at the moment."
            out.append(Refused(connection, waiting.ask.lease_id, NoEngine.code, reason, self.config.retry_after_s))

    def _refuse_overloaded(self, pool: PoolState, waiting: Waiting, why: str, out: list[Decision]) -> None:
        connection = waiting.session.connection
        if connection is not None:
            retry_after_s = pool.pace.wait_s(len(pool.queue), pool.places)
            reason = f"{waiting.ask.model} is overloaded: {why}."
            out.append(Refused(connection, waiting.ask.lease_id, Overloaded.code, reason, retry_after_s))

    def _refuse_late(self, pool: PoolState, waiting: Waiting, out: list[Decision]) -> None:
        if any(replica.usable for replica in pool.replicas):
            why = f"no place came free within {waiting.ask.deadline_s:.3g} s"
            self._refuse_overloaded(pool, waiting, why, out)
        else:
            self._refuse_no_engine(waiting, out)

    # fleet

    def _published(self, event: StatePublished, now: float, out: list[Decision]) -> None:
        if event.state.version <= self.fleet.version:
            return
        asks = [waiting for pool in self.fleet.pools.values() for waiting in pool.queue]
        for waiting in asks:
            self._unqueue(waiting)
        self.fleet.apply(event.state)
        # everyone who waited is judged anew, in order of arrival: models may have moved, pools shrunk
        for waiting in sorted(asks, key=lambda one: one.asked_at):
            connection = waiting.session.connection
            model = self.fleet.model(waiting.ask.model)
            if model is not None:
                self._place_or_queue(waiting.again(model), now, out)
            elif connection is not None:
                out.append(_unknown_model(connection, waiting.ask))

    def _probed(self, event: ReplicaProbed, now: float, out: list[Decision]) -> None:
        replica = self.fleet.replicas.get(event.replica_id)
        if replica is None or not replica.wanted:
            return
        replica.probed(event.healthy, event.detail, event.load, self.config.failure_threshold)
        pool = self.fleet.pools[replica.pool]
        if replica.usable:
            self._serve(pool, now, out)
        elif not replica.hopeful:
            for waiting in pool.queue:
                if not self._hopeful(pool, waiting.ask):
                    self._unqueue(waiting)
                    self._refuse_no_engine(waiting, out)

    def _tick(self, event: Tick, now: float, out: list[Decision]) -> None:
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].pool is None or deadlines[0][0] <= now):
            waiting = heapq.heappop(deadlines)[2]
            pool = waiting.pool
            if pool is not None:
                self._unqueue(waiting)
                self._refuse_late(pool, waiting, out)
        for session in list(self.sessions.values()):
            if session.grace_ends_at is not None and session.grace_ends_at <= now:
                self._end_session(session, now, out)


def _unknown_model(connection: int, ask: Ask) -> Refused:
    reason = f"The model {ask.model} does not exist."
    return Refused(connection, ask.lease_id, ModelNotFound.code, reason, None)
