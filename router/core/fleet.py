"""The replicas the router knows, by id, pool and model: the desired state made flesh.

A replica that leaves the desired state is drained: no new leases, remembered until the last one has ended.
"""

from __future__ import annotations

from contracts.desired_state import DesiredState, Model, Pool
from contracts.desired_state import Replica as WantedReplica
from router.core.pace import Pace
from router.core.replica import Health, Replica
from router.core.waiting import PoolQueue


class PoolState:
    """One pool: its replicas, who waits for them, how fast they free places."""

    __slots__ = ("name", "pace", "queue", "replicas")

    def __init__(self, name: str) -> None:
        self.name = name
        self.replicas: list[Replica] = []
        self.queue = PoolQueue()
        self.pace = Pace()

    @property
    def free(self) -> bool:
        """Some replica has a place left."""
        return any(replica.free for replica in self.replicas)

    @property
    def places(self) -> int:
        """Leases its usable replicas can hold together."""
        return sum(replica.max_concurrency for replica in self.replicas if replica.usable)


class Fleet:
    """Mutable; owned by the dispatcher."""

    def __init__(self) -> None:
        self.state: DesiredState | None = None
        self.replicas: dict[str, Replica] = {}
        self.pools: dict[str, PoolState] = {}
        self._models: dict[str, Model] = {}

    @property
    def version(self) -> int:
        """Of the desired state held; 0 for none."""
        return 0 if self.state is None else self.state.version

    def model(self, name: str) -> Model | None:
        """By name or alias."""
        return self._models.get(name)

    def apply(self, state: DesiredState) -> None:
        """Become `state`. Queues and learnt pace of pools that stay are kept."""
        self.state = state
        self._models = {name: model for model in state.models for name in (model.name, *model.aliases)}
        for replica in self.replicas.values():
            replica.wanted = False
        self.pools = {pool.name: self._pool(pool) for pool in state.pools}
        for replica in list(self.replicas.values()):
            self.forget_if_over(replica)

    def held(self, replica_id: str) -> Replica:
        """The replica a lease is on, known or not: after a restart gateways name replicas before any state arrives."""
        replica = self.replicas.get(replica_id)
        if replica is None:
            replica = self.replicas[replica_id] = Replica(replica_id)
        return replica

    def forget_if_over(self, replica: Replica) -> None:
        """Drop a replica that is neither wanted nor in use."""
        if not replica.wanted and replica.leases == 0:
            self.replicas.pop(replica.id, None)

    def _pool(self, pool: Pool) -> PoolState:
        kept = self.pools.get(pool.name) or PoolState(pool.name)
        kept.replicas = [self._replica(pool, wanted) for wanted in pool.replicas]
        return kept

    def _replica(self, pool: Pool, wanted: WantedReplica) -> Replica:
        replica = self.held(wanted.id)
        if (replica.url, replica.driver) != (wanted.url, pool.driver):
            # another engine under an old name: nothing known about the old one holds
            replica.url, replica.driver = wanted.url, pool.driver
            replica.health, replica.failures, replica.detail = Health.UNKNOWN, 0, "not polled yet"
        replica.wanted = True
        replica.pool = pool.name
        replica.weight = wanted.weight
        replica.max_concurrency = pool.max_concurrency
        return replica
