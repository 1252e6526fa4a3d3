"""A closed loop in virtual time: tenants ask again after each answer, of one engine with few slots."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from contracts.generation import Tier
from contracts.lease import LeaseEnd, LeaseRequest
from contracts.usage import Finish, Usage
from router.config import RouterConfig
from router.core.decisions import Decision, Granted, Refused
from router.core.dispatcher import Dispatcher
from router.core.events import (
    Acquire,
    Event,
    FirstToken,
    GatewayConnected,
    Release,
    ReplicaPolled,
    StatePublished,
    Tick,
)
from router.policies import registry
from tests.router.fakes import fleet

TOKEN_S, FIRST_TOKEN_S, POLL_S = 0.05, 0.02, 1.0
REFUSED_PAUSE_S = 0.5
DEADLINE_S = 30.0


class Asker(NamedTuple):
    """An organization, or a project of one. tokens: of each answer; most_tokens: it asks for."""

    lanes: int
    tokens: int
    most_tokens: int
    pause_s: float = 0.0
    """Between an answer and the next ask."""
    begins_s: float = 0.0
    organization_id: str = ""
    """Its name where empty."""
    share: float = 1.0
    prompt_tokens: int = 20


class Answered(msgspec.Struct):
    """Results of a lane's asks."""

    waits_s: list[float] = []
    passed_over: list[int] = []
    """Of each grant: how many others were granted something while it waited."""
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    """By cause."""


class ClosedLoop:
    """One run. settings: of RouterConfig."""

    def __init__(
        self, askers: Mapping[str, Asker], places: int, *, jitter: float = 0.3, seed: int = 0, **settings: Any
    ) -> None:
        self._askers, self._jitter = askers, jitter
        self._random = random.Random(seed)
        self._core = Dispatcher(RouterConfig(**settings), registry.create("prefix"))
        self._heap: list[tuple[float, int, str, tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._asked: dict[str, tuple[str, int, float, int]] = {}
        """By lease: whose it is, its lane, when it was asked, and how many grants there had been."""
        self._grants = 0
        self._tick_at: float | None = None
        self.now = 0.0
        self.answered = {name: Answered() for name in askers}
        self._tell(GatewayConnected(1, "gateway", "epoch"))
        self._tell(StatePublished(fleet(replicas=("r1",), max_concurrency=places)))
        self._poll()
        for name, asker in askers.items():
            for lane in range(asker.lanes):
                self._after(asker.begins_s, "ask", name, lane)

    def run(self, seconds: float) -> dict[str, Answered]:
        """Results of all asks up to a time."""
        steps: dict[str, Callable[..., None]] = {
            "ask": self._ask,
            "began": self._began,
            "ended": self._ended,
            "poll": self._poll,
            "tick": self._tick,
        }
        while self._heap[0][0] <= seconds:
            self.now, _, what, rest = heapq.heappop(self._heap)
            steps[what](*rest)
        return self.answered

    def _after(self, pause_s: float, what: str, *rest: Any) -> None:
        heapq.heappush(self._heap, (self.now + pause_s, next(self._numbers), what, rest))

    def _tell(self, event: Event) -> None:
        for decision in self._core.handle(event, self.now):
            self._obey(decision)
        wakeup = self._core.next_wakeup()
        if wakeup is not None and (self._tick_at is None or wakeup < self._tick_at):
            self._tick_at = max(wakeup, self.now)
            self._after(self._tick_at - self.now, "tick", self._tick_at)

    def _obey(self, decision: Decision) -> None:
        if isinstance(decision, Granted):
            lease_id = decision.lease.lease_id
            name, _, asked_at, grants = self._asked[lease_id]
            self.answered[name].waits_s.append(self.now - asked_at)
            self.answered[name].passed_over.append(self._grants - grants)
            self._grants += 1
            pauses = (
                self._random.uniform(1 - self._jitter, 1 + self._jitter) for _ in range(self._askers[name].tokens)
            )
            self._after(FIRST_TOKEN_S, "began", lease_id)
            self._after(FIRST_TOKEN_S + TOKEN_S * sum(pauses), "ended", lease_id)
        elif isinstance(decision, Refused):
            name, lane, _, _ = self._asked[decision.lease_id]
            assert decision.cause is not None
            self.answered[name].refused[decision.cause.value] += 1
            self._after(REFUSED_PAUSE_S, "ask", name, lane)

    def _ask(self, name: str, lane: int) -> None:
        asker, lease_id = self._askers[name], f"{name}-{lane}-{next(self._numbers)}"
        self._asked[lease_id] = name, lane, self.now, self._grants
        ask = LeaseRequest(
            lease_id, f"req_{lease_id}", 0, Tier.CHAT, "m", asker.prompt_tokens, asker.most_tokens, DEADLINE_S,
            organization_id=asker.organization_id or name, project_id=name, share=asker.share,
        )  # fmt: skip
        self._tell(Acquire(1, ask))

    def _began(self, lease_id: str) -> None:
        self._tell(FirstToken(1, lease_id, FIRST_TOKEN_S, 0))

    def _ended(self, lease_id: str) -> None:
        name, lane, _, _ = self._asked[lease_id]
        asker = self._askers[name]
        usage = Usage(asker.prompt_tokens, asker.tokens, 0)
        self._tell(Release(1, LeaseEnd(lease_id, Finish.COMPLETE, usage)))
        self._after(asker.pause_s, "ask", name, lane)

    def _poll(self) -> None:
        self._tell(ReplicaPolled("r1", True))
        self._after(POLL_S, "poll")

    def _tick(self, at: float) -> None:
        if self._tick_at == at:
            self._tick_at = None
            self._tell(Tick())
