"""The discrete-event loop: arrivals, engine steps, delayed reports, polls, and the router under test.

The router gets the events that the service would give it. Equal config, arrivals and seed give equal results.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from contracts.desired_state import DesiredState, Model, Pool
from contracts.desired_state import Replica as WantedReplica
from contracts.generation import Tier
from contracts.lease import LeaseEnd, LeaseRequest
from contracts.usage import Finish, Usage
from engines.performance.engine import Ended, FirstToken, Retracted
from engines.performance.job import Job
from router.core.decisions import Decision, Granted, PollNow, ProbeGeneration, Refused
from router.core.events import (
    Acquire,
    Event,
    GatewayConnected,
    GenerationProbed,
    Probe,
    Release,
    ReplicaPolled,
    StatePublished,
    Tick,
)
from router.core.events import FirstToken as FirstTokenReported
from tools.simulator.arrival import Arrival
from tools.simulator.config import SimulatorConfig
from tools.simulator.outcome import Outcome, promise_to
from tools.simulator.replica import ModelledReplica
from tools.simulator.under_test import KvListener, RouterUnderTest

MODEL = "modelled"
POOL = "modelled"
CONNECTION = 1
STUCK_S = 7_200.0
"""Simulated time after the last arrival after which a request that has not ended is a defect, not a slow response."""


class _Kind(IntEnum):
    STEP = 0
    SUBMIT = 1
    REPORT = 2
    POLL = 3
    TICK = 4
    RETURN = 5


class Stuck(RuntimeError):
    """Some requests will never end."""


class Simulation:
    """One run: call `run` once, then read `outcomes` and `replicas`."""

    def __init__(self, config: SimulatorConfig, router: RouterUnderTest, arrivals: Sequence[Arrival]) -> None:
        self.config = config
        self.router = router
        self.outcomes = [Outcome(arrival, promise_to(arrival, config.promises)) for arrival in arrivals]
        listener = router.kv_event if isinstance(router, KvListener) else None
        self.replicas = [ModelledReplica(index, config, listener) for index in range(config.replicas)]
        self.now = 0.0
        self.events = 0
        self._by_name = {replica.name: replica for replica in self.replicas}
        self._jobs: dict[str, tuple[Outcome, Job]] = {}
        self._probes: dict[str, str] = {}
        """The replica of each of the router's own generation probes, by job id."""
        self._random = random.Random(f"{config.seed} polls")
        self._heap: list[tuple[float, int, _Kind, Any]] = []
        self._pushed = 0
        self._tick_at: float | None = None
        self._over = 0

    def run(self) -> list[Outcome]:
        """Simulate every request to its end. Raises Stuck if the router loses one."""
        self._tell(GatewayConnected(CONNECTION, "simulated", "1"))
        self._tell(StatePublished(self._desired_state()))
        for replica in self.replicas:
            self._tell(_poll(replica))
            self._push(self._random.uniform(0, self.config.poll_interval_s), _Kind.POLL, replica)
        order = sorted(range(len(self.outcomes)), key=lambda index: self.outcomes[index].arrival.at_s)
        give_up_at = (self.outcomes[order[-1]].arrival.at_s if order else 0.0) + STUCK_S
        for index in order:
            self._until(self.outcomes[index].arrival.at_s)
            self._arrive(index)
        while self._over < len(self.outcomes):
            if not self._heap or self._heap[0][0] > give_up_at:
                raise Stuck(f"{len(self.outcomes) - self._over} of {len(self.outcomes)} requests never ended")
            self._step()
        return self.outcomes

    def _desired_state(self) -> DesiredState:
        replicas = tuple(WantedReplica(replica.name, f"http://{replica.name}") for replica in self.replicas)
        pool = Pool(POOL, "sglang", replicas, self.config.max_concurrency)
        return DesiredState(1, (Model(MODEL, Tier.CHAT, POOL, 1 << 20),), (pool,))

    # time

    def _push(self, at: float, kind: _Kind, what: Any) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, kind, what))

    def _until(self, at: float) -> None:
        while self._heap and self._heap[0][0] <= at:
            self._step()
        self.now = at

    def _step(self) -> None:
        at, _, kind, what = heapq.heappop(self._heap)
        self.now = at
        self.events += 1
        if kind is _Kind.STEP:
            # a shortened stretch of steps left its old end in the heap
            if what.engine.step_ends_at == at:
                self._engine_step(what)
        elif kind is _Kind.SUBMIT:
            replica, job = what
            before = replica.engine.step_ends_at
            replica.engine.submit(job, at)
            self._follow(replica, before)
        elif kind is _Kind.REPORT:
            self._tell(what)
        elif kind is _Kind.POLL:
            self._push(at + self.config.network_s, _Kind.REPORT, _poll(what))
            pause_s = self.config.poll_interval_s * self._random.uniform(0.9, 1.1)
            self._push(at + pause_s, _Kind.POLL, what)
        elif kind is _Kind.RETURN:
            self._arrive(what)
        elif self._tick_at is not None and at >= self._tick_at:
            self._tick_at = None
            self._tell(Tick())

    def _follow(self, replica: ModelledReplica, before: float | None) -> None:
        ends_at = replica.engine.step_ends_at
        if ends_at is not None and ends_at != before:
            self._push(ends_at, _Kind.STEP, replica)

    # the router

    def _arrive(self, index: int) -> None:
        outcome = self.outcomes[index]
        arrival = outcome.arrival
        outcome.asked_at = self.now
        outcome.asked += 1
        lease_id = f"{index}-{outcome.asked}"
        job = Job(lease_id, arrival.prompt_tokens, arrival.output_tokens, arrival.blocks, arrival.answer_blocks)
        self._jobs[lease_id] = (outcome, job)
        ask = LeaseRequest(
            lease_id=lease_id,
            request_id=str(index),
            attempt=0,
            tier=Tier.CHAT,
            model=MODEL,
            prompt_tokens=arrival.prompt_tokens,
            max_output_tokens=max(self.config.max_output_tokens, arrival.output_tokens),
            deadline_s=promise_to(arrival).ttft_s,
            organization_id=arrival.organization_id,
            prefix_kind="bytes",
            prefix_hashes=b"".join(arrival.blocks),
            session_id=arrival.session_id,
            priority=arrival.priority,
            share=arrival.share,
        )
        self._tell(Acquire(CONNECTION, ask))

    def _tell(self, event: Event) -> None:
        for decision in self.router.handle(event, self.now):
            self._obey(decision)
        wakeup = self.router.next_wakeup()
        if wakeup is not None and (self._tick_at is None or wakeup < self._tick_at):
            self._tick_at = max(wakeup, self.now)
            self._push(self._tick_at, _Kind.TICK, None)

    def _obey(self, decision: Decision) -> None:
        if isinstance(decision, Granted):
            outcome, job = self._jobs[decision.lease.lease_id]
            if outcome.granted_at is not None or outcome.over:
                raise Stuck(f"request {job.id} was answered twice")
            replica = self._by_name[decision.lease.engine.replica_id]
            outcome.granted_at = self.now
            outcome.replica = replica.index
            self._push(self.now + self.config.network_s, _Kind.SUBMIT, (replica, job))
        elif isinstance(decision, Refused):
            outcome, job = self._jobs.pop(decision.lease_id)
            if outcome.granted_at is not None or outcome.over:
                raise Stuck(f"request {job.id} was answered twice")
            outcome.code, outcome.reason = decision.code, decision.reason
            outcome.retry_after_s = decision.retry_after_s
            if outcome.asked == 1:
                outcome.told_first_s = decision.retry_after_s
            if decision.retry_after_s is not None and outcome.asked <= self.config.retries:
                index = int(decision.lease_id.partition("-")[0])
                self._push(self.now + decision.retry_after_s, _Kind.RETURN, index)
                return
            outcome.refused_at = self.now
            self._over += 1
        elif isinstance(decision, ProbeGeneration):
            job = Job(f"probe-{self._pushed}", 1, 1, (), ())
            self._probes[job.id] = decision.replica_id
            self._push(self.now + self.config.network_s, _Kind.SUBMIT, (self._by_name[decision.replica_id], job))
        elif isinstance(decision, PollNow):
            replica = self._by_name[decision.replica_id]
            self._push(self.now + self.config.network_s, _Kind.REPORT, _poll(replica))

    # the engines

    def _engine_step(self, replica: ModelledReplica) -> None:
        now, later = self.now, self.now + self.config.network_s
        for news in replica.engine.finish_step(now):
            if news.job.id in self._probes:
                if isinstance(news, Ended):
                    probed = GenerationProbed(self._probes.pop(news.job.id), Probe.WELL)
                    self._push(later, _Kind.REPORT, probed)
                continue
            outcome, _ = self._jobs[news.job.id]
            if isinstance(news, FirstToken):
                outcome.first_token_at = now
                outcome.cached_tokens = news.job.cached_tokens
                granted_at = outcome.granted_at if outcome.granted_at is not None else now
                report = FirstTokenReported(CONNECTION, news.job.id, now - granted_at, news.job.cached_tokens)
                self._push(later, _Kind.REPORT, report)
            elif isinstance(news, Ended):
                outcome.ended_at = now
                del self._jobs[news.job.id]
                self._push(later, _Kind.REPORT, Release(CONNECTION, _end(news.job)))
                self._over += 1
            elif isinstance(news, Retracted):
                outcome.retractions += 1
        self._follow(replica, None)


def _poll(replica: ModelledReplica) -> ReplicaPolled:
    return ReplicaPolled(replica.name, True, "", replica.load())


def _end(job: Job) -> LeaseEnd:
    usage = Usage(job.prompt_tokens, job.generated, job.cached_tokens)
    return LeaseEnd(job.id, Finish.COMPLETE, usage)
