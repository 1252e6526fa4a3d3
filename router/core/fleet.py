"""The replicas of the desired state in force, by id, pool and model.

A replica that leaves the desired state is drained: it gets no new leases, and stays until its last lease has ended.
"""

from __future__ import annotations

from contracts.desired_state import DesiredState, Model, Pool
from contracts.desired_state import Replica as WantedReplica
from contracts.generation import Tier
from contracts.pooling import Task
from contracts.split import Side, pool_of, side_of, unit_of
from router.config import RouterConfig
from router.core.breaker import Breaker
from router.core.concurrency_limit import ConcurrencyLimit
from router.core.pool import PoolLinks, PoolState
from router.core.replica import Health, Replica
from router.core.slowness import Slowness
from router.core.speculation import governor_of, told_without
from router.core.state import QueuedRequest


class Fleet:
    """The mutable fleet, which the dispatcher owns."""

    def __init__(self, config: RouterConfig) -> None:
        self.state: DesiredState | None = None
        self.replicas: dict[str, Replica] = {}
        self.pools: dict[str, PoolState] = {}
        self._models: dict[str, Model] = {}
        self._limit_blocks = config.prefix_blocks
        self._concurrency = config.concurrency
        self._adapter_recent_s = config.adapter_recent_s

    @property
    def version(self) -> int:
        """The desired state's version; 0 before the first state."""
        return 0 if self.state is None else self.state.version

    def model(self, name: str) -> Model | None:
        """The model with this name or alias, or None."""
        return self._models.get(name)

    def has_pool(self, name: str) -> bool:
        """Whether a request may name this pool; the empty name means the model's own pool."""
        return not name or name in self.pools

    def pool_for(self, waiting: QueuedRequest) -> PoolState:
        """The pool that serves a request: the one that it names, or that of its session's side in the model's split."""
        model, ask = waiting.model, waiting.ask
        canary = model.canary
        waiting.engine_model = model.engine_model or model.name
        if ask.pool:
            if canary is not None and ask.pool == canary.pool:
                waiting.engine_model = canary.engine_model or waiting.engine_model
            return self.pools[ask.pool]
        if canary is None:
            return self.pools[model.pool]
        unit = ask.unit
        if not unit and not canary.release:
            unit = unit_of(ask.organization_id, ask.session_id or ask.organization_id or ask.request_id)
        # a gateway that does not know a release's split cannot measure it, so its requests take no part in it
        side = side_of(model, unit) if unit else Side.BASELINE
        if side is Side.CANDIDATE:
            waiting.engine_model = canary.engine_model or waiting.engine_model
        return self.pools[pool_of(model, side)]

    def shared_by(self, prefill: PoolState) -> PoolState | None:
        """The pool whose requests may be split over the pair of this prefill pool, or None."""
        decode = self.pools.get(prefill.links.decode)
        return None if decode is None else self.pools.get(decode.links.whole)

    def served_by(self, pool_name: str) -> tuple[str, Tier] | None:
        """The engines' name of a model that a pool generates with, and its tier; None if it generates with none: its
        models make vectors or scores, or it is one side of pairs, whose engines take no request alone."""
        pool = self.pools.get(pool_name)
        if pool is not None and (pool.links.prefill or pool.links.decode):
            return None
        for model in self.state.models if self.state is not None else ():
            if model.task is not Task.TEXT:
                continue
            name = model.engine_model or model.name
            if pool_name in (model.pool, model.canary and model.canary.control_pool):
                return name, model.tier
            if model.canary is not None and model.canary.pool == pool_name:
                return model.canary.engine_model or name, model.tier
        return None

    def apply(self, state: DesiredState) -> None:
        """Apply `state`. Pools that stay keep their queues, and replicas that stay keep what was learnt about them."""
        self.state = state
        self._models = {name: model for model in state.models for name in (model.name, *model.aliases)}
        for replica in self.replicas.values():
            replica.wanted = False
        before = self.pools
        self.pools = {
            pool.name: before.get(pool.name) or PoolState(pool.name, self._limit_blocks) for pool in state.pools
        }
        for replica in self.replicas.values():
            for live in replica.live.values():
                if live.pool not in self.pools:
                    live.pool = ""  # a later pool of that name is a different pool
        moved = {replica.id: pool.name for pool in state.pools for replica in pool.replicas}
        for old in before.values():
            for replica in list(old.replicas):
                if moved.get(replica.id) != old.name:
                    old.become([each for each in old.replicas if each is not replica])
        decode_pools = {pool.prefill_pool: pool.name for pool in state.pools if pool.prefill_pool}
        whole_pools = {pool.split_pool: pool.name for pool in state.pools if pool.split_pool}
        for pool in state.pools:
            held = self.pools[pool.name]
            held.max_adapters = pool.max_adapters
            held.links = PoolLinks(
                pool.prefill_pool, decode_pools.get(pool.name, ""), pool.split_pool, whole_pools.get(pool.name, "")
            )
            held.governor = governor_of(pool.speculation, pool.driver, held.governor)
            held.ungoverned = told_without(pool.speculation, pool.driver)
            held.become([self._replica(pool, wanted) for wanted in pool.replicas])
        for replica in list(self.replicas.values()):
            self.forget_if_over(replica)

    def held(self, replica_id: str) -> Replica:
        """The replica of a lease, added if unknown: after a restart, gateways name replicas before any state
        arrives."""
        replica = self.replicas.get(replica_id)
        if replica is None:
            replica = self.replicas[replica_id] = Replica(replica_id)
        return replica

    def blocks_of(self, replica: Replica) -> int:
        """Number of prefix blocks that the replica is assumed to hold."""
        pool = self.pools.get(replica.pool)
        return pool.index.held.get(replica.slot, 0) if pool is not None else 0

    def prefill_tokens_per_s(self, replica: Replica) -> float:
        """The learnt prefill speed of a replica; 0 while it is unknown."""
        pool = self.pools.get(replica.pool)
        return pool.latency_model.prefill_tokens_per_s / replica.ratio.value if pool is not None else 0.0

    def forget_if_over(self, replica: Replica) -> None:
        """Drop a replica that is neither wanted nor in use."""
        if not replica.wanted and replica.leases == 0:
            self.replicas.pop(replica.id, None)

    def _replica(self, pool: Pool, wanted: WantedReplica) -> Replica:
        replica = self.held(wanted.id)
        if (replica.url, replica.driver) != (wanted.url, pool.driver):
            # another engine under the same name, to which nothing learnt about the old one applies
            replica.url, replica.driver = wanted.url, pool.driver
            replica.health, replica.failures, replica.detail = Health.UNKNOWN, 0, "not polled yet"
            replica.breaker, replica.ratio, replica.fill = Breaker(), Slowness(wanted.speed), 1.0
            replica.accusers.clear()
            replica.forget_reports()
            replica.probing, replica.retractions = False, None
            replica.slow_probes = 0
            replica.limit = None
            replica.adapters.forget()
            self.pools[pool.name].avoidance.forget(replica.id)
            if replica.slot >= 0:
                self.pools[pool.name].index.forget(replica.slot)
        replica.wanted = True
        replica.pool = pool.name
        replica.weight = wanted.weight
        replica.speculation = wanted.speculation
        replica.context_tokens = wanted.context_tokens
        replica.bootstrap_port = wanted.bootstrap_port
        replica.hardware = pool.hardware_of(wanted)
        replica.follows_kv = bool(wanted.kv_events)
        replica.adapters.most, replica.adapters.recent_s = pool.max_adapters, self._adapter_recent_s
        self._bound(replica, pool.max_concurrency)
        return replica

    def _bound(self, replica: Replica, ceiling: int) -> None:
        """Set the limit of a replica's leases. ceiling: the pool's `max_concurrency`; 0 for none."""
        settings = self._concurrency
        if replica.limit is None and settings.learn:
            replica.limit = ConcurrencyLimit(settings, ceiling)
        elif replica.limit is not None and replica.ceiling != ceiling:
            replica.limit.bound(settings, ceiling)
        replica.ceiling = ceiling
        # a replica that reports only its memory is limited by that
        replica.unreported = settings.max_limit if settings.learn else settings.initial
