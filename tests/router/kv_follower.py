"""The router's core following one engine's KV events over real ZeroMQ, without the rest of the router."""

from __future__ import annotations

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.prefix import chain_tokens, root
from router.config import RouterConfig
from router.core.decisions import ReplayKvEvents
from router.core.dispatcher import Dispatcher
from router.core.events import KvBatch, ReplicaPolled, StatePublished
from router.kv_subscriber import KvSubscriptions
from router.policies import registry


class KvFollower:
    """endpoint, replay_endpoint: where the engine publishes its events, and repeats them."""

    def __init__(self, endpoint: str, replay_endpoint: str) -> None:
        self.core = Dispatcher(RouterConfig(), registry.create("prefix"))
        self.subscriptions = KvSubscriptions(self.heard)
        self.drop = 0
        """Live messages to lose."""
        self.heard_repeated = 0
        replica = Replica("r1", "http://e", kv_events=endpoint, kv_events_replay=replay_endpoint)
        state = DesiredState(1, (Model("m", Tier.AUTOCOMPLETE, "p", 8192),), (Pool("p", "embedded", (replica,)),))
        self.core.handle(StatePublished(state), 0.0)
        self.core.handle(ReplicaPolled("r1", True), 0.0)
        self.subscriptions.follow({"r1": (endpoint, replay_endpoint)})

    @property
    def joined(self) -> bool:
        """Something was heard: a SUB joins some time after it connects."""
        return "r1" in self.core._mirrors and self.core._mirrors["r1"].next_number > 0

    def heard(self, batch: KvBatch) -> None:
        if self.drop and not batch.repeated:
            self.drop -= 1
            return
        self.heard_repeated += batch.repeated
        for decision in self.core.handle(batch, 0.0):
            assert isinstance(decision, ReplayKvEvents)
            self.subscriptions.ask_replay(decision.replica_id, decision.first)

    def overlap(self, tokens: tuple[int, ...], salt: str = "") -> int:
        index = self.core.fleet.pools["p"].index
        return index.overlap(index.match(chain_tokens(root("m", salt=salt), tokens).hashes), 0)
