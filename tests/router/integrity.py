"""What must hold in the core after every event. Walks everything."""

from __future__ import annotations

from collections import Counter

from contracts.lease import LeaseRequest
from router.core.dispatcher import Dispatcher
from router.core.pool import PoolState


def check_integrity(dispatcher: Dispatcher) -> None:
    """Raise AssertionError, naming the rule, when the core's books disagree with each other."""
    _check_counts(dispatcher)
    _check_sessions(dispatcher)
    _check_queues(dispatcher)
    _check_prefixes(dispatcher)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(rule)


def _check_counts(dispatcher: Dispatcher) -> None:
    leases: Counter[str] = Counter()
    prefill: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for session in dispatcher.sessions.values():
        for live in session.leases.values():
            leases[live.replica_id] += 1
            tokens[live.replica_id] += live.tokens
            prefill[live.replica_id] += live.uncached_tokens if live.waits_for_first_token else 0
    replicas = dispatcher.fleet.replicas
    for replica in replicas.values():
        _require(replica.leases == leases[replica.id], f"{replica.id}: counted leases are the live leases")
        _require(replica.tokens == tokens[replica.id], f"{replica.id}: counted tokens are those of the live leases")
        _require(replica.prefill_tokens == prefill[replica.id], f"{replica.id}: counted prefill is that of its leases")
        _require(len(replica.live) == replica.leases, f"{replica.id}: knows its leases")
        tried = {one.ask.organization_id for one in replica.live.values() if one.trial and one.ask is not None}
        _require(replica.trials == tried, f"{replica.id}: knows whose leases are trials")
        _require(replica.peak >= replica.leases, f"{replica.id}: the peak is at least the present")
        _require(replica.wanted or replica.leases > 0, f"{replica.id}: unwanted and unused replicas are forgotten")
    _require(set(leases) <= set(replicas), "every lease is on a replica that is remembered")


def _check_sessions(dispatcher: Dispatcher) -> None:
    for gateway_id, session in dispatcher.sessions.items():
        _require(session.gateway_id == gateway_id, "sessions are filed under their gateway")
        connected = session.connection is not None
        _require(connected == (session.grace_ends_at is None), f"{gateway_id}: grace runs exactly while disconnected")
        _require(connected or not session.waiting, f"{gateway_id}: nobody waits for a gateway that is away")
        if session.connection is not None:
            _require(dispatcher.connections.get(session.connection) is session, f"{gateway_id}: its stream leads to it")
        _require(not session.ended.keys() & session.leases.keys(), f"{gateway_id}: no lease lives again")
        _require(not session.waiting.keys() & session.leases.keys(), f"{gateway_id}: waiting or granted, not both")
    attached = sum(session.connection is not None for session in dispatcher.sessions.values())
    _require(attached == len(dispatcher.connections), "every stream belongs to one session")


def _idle_for(pool: PoolState, ask: LeaseRequest) -> bool:
    away = pool.kept_away_from(ask)
    return any(
        one.id not in ask.excluded_replicas
        and one.free
        and not one.leases
        and not one.foreign
        and not one.context_tokens
        and one.id not in away
        and not one.bars(ask.organization_id)
        for one in pool.replicas
    )


def _check_prefixes(dispatcher: Dispatcher) -> None:
    for pool in dispatcher.fleet.pools.values():
        index = pool.index
        _require(set(pool.by_slot.values()) == set(pool.replicas), f"{pool.name}: its replicas have numbers")
        _require(set(index.held) <= set(pool.by_slot), f"{pool.name}: only its replicas hold prefixes")
        _require(index.blocks <= index.limit_blocks, f"{pool.name}: remembered blocks are bounded")
        for replica in pool.replicas:
            most = pool.capacity_blocks(replica, dispatcher.config.prefix_blocks_per_replica)
            _require(index.held.get(replica.slot, 0) >= 0, f"{replica.id}: holds blocks or none")
            _require(most > 0, f"{replica.id}: can hold something")


def _check_queues(dispatcher: Dispatcher) -> None:
    queued = 0
    for pool in dispatcher.fleet.pools.values():
        _require(len(pool.queue) <= dispatcher.config.queue_length, f"{pool.name}: the queue is bounded")
        usable = sum(one.usable for one in pool.replicas)
        _require(pool.usable == usable, f"{pool.name}: knows how many are usable")
        idle = sum(one.free and not one.leases and not one.foreign for one in pool.replicas)
        _require(pool.idle == idle, f"{pool.name}: knows how many serve nobody")
        _require({*pool.free} == {one for one in pool.replicas if one.free}, f"{pool.name}: knows who is free")
        _require(len(list(pool.queue.in_order(float("-inf")))) == len(pool.queue), f"{pool.name}: everyone has a turn")
        granted = [
            live for one in dispatcher.sessions.values() for live in one.leases.values() if live.pool == pool.name
        ]
        told = sum(tenant.leases for tenant in pool.queue.tenants.values())
        _require(told == sum(live.ask is not None for live in granted), f"{pool.name}: tenants have the pool's leases")
        growth = sum(live.growth_tokens for live in granted if live.ask is not None)
        accounts = list(pool.queue.tenants.values())
        projects_growth = sum(one.growth_tokens for tenant in accounts for one in tenant.projects.values())
        _require(growth == sum(one.growth_tokens for one in accounts) == projects_growth, f"{pool.name}: knows answers")
        held = sum(tenant.held_tokens for tenant in pool.queue.tenants.values() if not tenant.yields)
        _require(held == pool.queue.held_tokens >= 0, f"{pool.name}: tenants hold what the pool has given")
        waits = sum(one.ask.prompt_tokens + one.ask.max_output_tokens for one in pool.queue)
        told = sum(tenant.waiting_tokens for tenant in pool.queue.tenants.values())
        _require(waits == told, f"{pool.name}: tenants wait for what the queue holds")
        divided = sum(tenant.waiting_tokens for tenant in pool.queue.tenants.values() if not tenant.yields)
        _require(divided == pool.queue.waiting_tokens, f"{pool.name}: what yields is not divided among the others")
        projects = sum(one.waiting for tenant in pool.queue.tenants.values() for one in tenant.projects.values())
        _require(projects == len(pool.queue), f"{pool.name}: everyone waits for a project of a tenant")
        for waiting in pool.queue:
            queued += 1
            ask = waiting.ask
            _require(waiting.pool == pool.name, f"{ask.lease_id}: knows its queue")
            _require(
                waiting.session.waiting.get(ask.lease_id) is waiting, f"{ask.lease_id}: its session knows it waits"
            )
            others = [replica for replica in pool.replicas if replica.id not in ask.excluded_replicas]
            prefill = dispatcher.fleet.pools.get(pool.links.prefill)
            idle = _idle_for(pool, ask) and (prefill is None or _idle_for(prefill, ask))
            _require(not idle, f"{ask.lease_id}: nobody waits beside an idle engine, or pair of engines")
            _require(any(replica.hopeful for replica in others), f"{ask.lease_id}: nobody waits in vain")
    waiting_in_sessions = sum(len(session.waiting) for session in dispatcher.sessions.values())
    _require(queued == waiting_in_sessions, "queues and sessions agree on who waits")
