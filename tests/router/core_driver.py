"""A core with a clock and one gateway, for tests that speak in events."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from contracts.desired_state import DesiredState
from contracts.lease import LeaseEnd
from contracts.usage import Finish, Usage
from engines.drivers.base import Load
from router.config import RouterConfig
from router.core.decisions import Decision, Granted, Refused
from router.core.dispatcher import Dispatcher
from router.core.events import Acquire, Event, FirstToken, GatewayConnected, Release, ReplicaPolled, StatePublished
from router.policies import registry
from tests.router.fakes import ask, fleet
from tests.router.integrity import check_integrity


class Core:
    """Every event is followed by the integrity check. settings: of RouterConfig."""

    def __init__(self, state: DesiredState | None = None, policy: str = "prefix", **settings: Any) -> None:
        self.config = RouterConfig(policy=policy, **settings)
        self.core = Dispatcher(self.config, registry.create(policy))
        self.now = 100.0
        self._numbers = itertools.count(1)
        self.do(GatewayConnected(1, "gateway", "epoch"))
        self.publish(state or fleet())

    def do(self, event: Event) -> list[Decision]:
        decisions = self.core.handle(event, self.now)
        check_integrity(self.core)
        return decisions

    def publish(self, state: DesiredState) -> None:
        self.do(StatePublished(state))
        for replica_id in self.core.fleet.replicas:
            self.do(ReplicaPolled(replica_id, True))

    def ask(self, lease_id: str = "", **fields: Any) -> list[Decision]:
        """Fields of Ask; prompt_tokens and max_output_tokens are 10 each unless given."""
        plain = ask(lease_id or f"lease-{next(self._numbers)}")
        return self.do(Acquire(1, msgspec.structs.replace(plain, **fields)))

    def placed(self, lease_id: str = "", **fields: Any) -> str:
        """The replica it was granted."""
        (decision,) = self.ask(lease_id, **fields)
        assert isinstance(decision, Granted), decision
        return decision.lease.engine.replica_id

    def began(self, lease_id: str, ttft_s: float = 0.0, cached_tokens: int = 0) -> list[Decision]:
        return self.do(FirstToken(1, lease_id, ttft_s, cached_tokens))

    def over(
        self, lease_id: str, prompt: int = 10, completion: int = 5, cached: int = 0, *, fault: bool = False
    ) -> list[Decision]:
        finish = Finish.ENGINE_ERROR if fault else Finish.COMPLETE
        usage = Usage() if fault else Usage(prompt, completion, cached)
        return self.do(Release(1, LeaseEnd(lease_id, finish, usage, engine_fault=fault)))

    def polled(self, replica_id: str = "r1", **load: Any) -> list[Decision]:
        return self.do(ReplicaPolled(replica_id, True, "", Load(**load)))

    def served(self, prompt: int, ttft_s: float, completion: int = 2, replica_id: str = "", **fields: Any) -> str:
        """One request from beginning to end, alone; the replica it ran on."""
        lease_id = f"lease-{next(self._numbers)}"
        fields.setdefault("max_output_tokens", max(completion, 10))
        others = tuple(one for one in self.core.fleet.replicas if replica_id and one != replica_id)
        where = self.placed(lease_id, prompt_tokens=prompt, excluded_replicas=others, **fields)
        self.now += ttft_s
        self.began(lease_id, ttft_s)
        self.now += 0.01 * completion
        self.over(lease_id, prompt, completion)
        return where

    def learn(self, seconds_per_token: float, replica_ids: tuple[str, ...] = ("r1",), rounds: int = 30) -> None:
        """Teach it how fast the engines are."""
        for number in range(rounds):
            for replica_id in replica_ids:
                prompt = 500 + 300 * (number % 7)
                self.served(prompt, 0.01 + prompt * seconds_per_token, replica_id=replica_id)


def granted(decisions: list[Decision]) -> list[str]:
    """Lease ids."""
    return [one.lease.lease_id for one in decisions if isinstance(one, Granted)]


def refused(decisions: list[Decision]) -> list[Refused]:
    return [one for one in decisions if isinstance(one, Refused)]
