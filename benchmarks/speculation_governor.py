"""Drafting always, never, and as the fleet's governor says: tokens per second of a pool at low load, at its peak, and
at low load again. No time to a first token is told or compared: drafts do not change it.

    python -m benchmarks.speculation_governor [--seeds 3] [--node 70b-fp8-2xh100] [--acceptance 0.5]

The router is the real one: its core, fed with what gateways and polls would tell it, on a clock of its own; the
governor is that of a pool with `speculation.governed`, and what its grants say is what the modelled engines do. These
are modelled (`engines/performance`, the roofline fitted to published figures; drafts by `tools/launch/drafting.py`):
they batch continuously, a chunk of a prompt beside what decodes, and check `--drafts` drafts for each stream that may
have them, of which each is right with the chance `--acceptance` where those before it were. They have no governor of
their own. Drafting ends where the model says that it gains less than a tenth (`off_above_running`), and begins again
below half of that. Clients ask again about a second after each answer, whose length is drawn. The first minute of each
phase is not counted.

Figures are of a model, not of a machine. Last line: JSON with tokens per second by phase and arm, the worst ratio of
the governed arm to the better of the other two by phase, and how often it was switched.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.lease import Lease, LeaseEnd, LeaseRequest
from contracts.speculation import SpeculationRule
from contracts.usage import Finish, Usage
from engines.drivers.base import Load
from engines.performance.catalog import node as node_named
from engines.performance.roofline import Node, Roofline, pairs
from router.config import RouterConfig
from router.core.dispatcher import Dispatcher
from router.core.events import Acquire, FirstToken, GatewayConnected, Release, ReplicaPolled, StatePublished
from router.policies import registry
from tools.launch.draft_head import head_parameters
from tools.launch.drafting import MIN_GAIN, Drafting

REPLICAS = 2
PROMPT_TOKENS, OUTPUT_TOKENS = 800, 400
THINK_S = 1.0
POLL_S = 1.0
PHASE_S, SETTLING_S = 240.0, 60.0
"""The length of each phase, and the part of it that is not counted: its streams are those of the phase before."""
DWELL_S = 30.0
_MAY_DRAFT: dict[str, Callable[[Lease], bool]] = {
    "on": lambda _: True,
    "off": lambda _: False,
    "governed": lambda lease: not lease.no_drafts,
}
ARMS = tuple(_MAY_DRAFT)


class Shape(NamedTuple):
    """The modelled machine, its drafts, and the load at which they stop paying."""

    node: Node
    line: Roofline
    drafting: Drafting
    drafts: int
    acceptance: float
    off_above: int
    low: int
    """Clients per replica; `peak` too."""
    peak: int


class Stream(msgspec.Struct):
    """One request at an engine."""

    lease: Lease
    client: int
    granted_s: float
    prompt_left: int
    output_left: int
    generated: int = 0


class Engine:
    """A modelled engine, which steps while it has work. drafting: whether a lease's stream may have drafts."""

    def __init__(self, shape: Shape, drafting: Callable[[Lease], bool], seed: int) -> None:
        self.waiting: deque[Stream] = deque()
        self.running: list[Stream] = []
        self.busy = False
        self._shape = shape
        self._may_draft = drafting
        self._chance = random.Random(seed)

    @property
    def load(self) -> Load:
        """The load that it would report."""
        return Load(running=len(self.running), waiting=len(self.waiting))

    def step(self) -> tuple[float, list[Stream], list[Stream], int]:
        """Run the next step; returns its duration, the streams that begin, those that end, and its tokens in all."""
        shape, running = self._shape, self.running
        room, prompt, prompt_pairs, begun = shape.node.gpu.chunk_tokens - len(running), 0, 0.0, list[Stream]()
        while self.waiting and room > 0:
            head = self.waiting[0]
            piece = min(room, head.prompt_left)
            before = PROMPT_TOKENS - head.prompt_left
            prompt, prompt_pairs, room = prompt + piece, prompt_pairs + pairs(piece, before), room - piece
            head.prompt_left -= piece
            if head.prompt_left:
                break
            begun.append(self.waiting.popleft())
        context = sum(PROMPT_TOKENS + one.generated for one in running)
        drafters = sum(self._may_draft(one.lease) for one in running)
        taken_s = shape.line.step_s(prompt, prompt_pairs, len(running), context)
        taken_s += shape.drafting.cost_s(prompt + len(running), drafters, shape.drafts)
        tokens, ended = 0, list[Stream]()
        for one in running:
            new = min(1 + self._right(one.lease), one.output_left)
            one.generated += new
            one.output_left -= new
            tokens += new
            if not one.output_left:
                ended.append(one)
        for one in begun:
            one.generated, one.output_left, tokens = 1, one.output_left - 1, tokens + 1
        self.running = [one for one in running if one.output_left] + begun
        return taken_s, begun, ended, tokens

    def _right(self, lease: Lease) -> int:
        """The number of accepted drafts of one check."""
        if not self._may_draft(lease):
            return 0
        right = 0
        while right < self._shape.drafts and self._chance.random() < self._shape.acceptance:
            right += 1
        return right


class Course:
    """A run of one arm through all phases."""

    def __init__(self, shape: Shape, arm: str, seed: int) -> None:
        rule = SpeculationRule(True, shape.off_above, shape.off_above / 2, DWELL_S)
        may_draft = _MAY_DRAFT[arm]
        names = [f"r{number}" for number in range(REPLICAS)]
        replicas = tuple(Replica(name, f"http://{name}:1") for name in names)
        pool = Pool("pool", "embedded", replicas, max_concurrency=4 * shape.peak, speculation=rule)
        self.core = Dispatcher(RouterConfig(slos=(), explain_records=0), registry.create("prefix"))
        self.engines = {name: Engine(shape, may_draft, seed + number) for number, name in enumerate(names)}
        self.tokens: list[tuple[float, int]] = []
        """(end, tokens) of every step."""
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._lengths: dict[str, tuple[int, int]] = {}
        """The client and the length of the answer, by lease."""
        self._clients = 0
        self._wanted = 0
        self.core.handle(GatewayConnected(1, "gateway", "epoch"), 0.0)
        model = Model("m", Tier.CHAT, "pool", 8_192)
        self.core.handle(StatePublished(DesiredState(1, (model,), (pool,))), 0.0)
        self._poll(0.0)

    def run(self, phases: Sequence[int]) -> list[float]:
        """Run all phases; returns the tokens per second of each. phases: the number of clients of each."""
        for number, clients in enumerate(phases):
            self._at(number * PHASE_S, partial(self._become, clients))
        end_s = len(phases) * PHASE_S
        while self._events and self._events[0][0] < end_s:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return [
            sum(count for at, count in self.tokens if begin + SETTLING_S <= at < begin + PHASE_S)
            / (PHASE_S - SETTLING_S)
            for begin in (number * PHASE_S for number in range(len(phases)))
        ]

    @property
    def switches(self) -> int:
        """How often the governor has switched drafting."""
        governor = self.core.fleet.pools["pool"].governor
        return 0 if governor is None else governor.switches

    def _at(self, at_s: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), act))

    def _poll(self, now: float) -> None:
        for name, engine in self.engines.items():
            self.core.handle(ReplicaPolled(name, True, "", engine.load), now)
        self._at(now + POLL_S, self._poll)

    def _become(self, clients: int, now: float) -> None:
        self._wanted = clients
        while self._clients < clients:
            client, self._clients = self._clients, self._clients + 1
            self._at(now + self._chance.random() * THINK_S, partial(self._ask, client))

    def _ask(self, client: int, now: float) -> None:
        if client >= self._wanted:  # the clients that came last leave first
            self._clients = min(self._clients, client)
            return
        lease_id = f"lease-{next(self._numbers)}"
        output = self._chance.randint(OUTPUT_TOKENS // 2, OUTPUT_TOKENS * 3 // 2)
        self._lengths[lease_id] = (client, output)
        ask = LeaseRequest(lease_id, lease_id, 0, Tier.CHAT, "m", PROMPT_TOKENS, output, 600.0)
        self._granted(self.core.handle(Acquire(1, ask), now), now)

    def _granted(self, decisions: Sequence[object], now: float) -> None:
        for decision in decisions:
            lease = getattr(decision, "lease", None)
            if not isinstance(lease, Lease):
                raise TypeError(f"a request was not placed: {decision}")
            client, output = self._lengths.pop(lease.lease_id)
            engine = self.engines[lease.engine.replica_id]
            engine.waiting.append(Stream(lease, client, now, PROMPT_TOKENS, output))
            if not engine.busy:
                self._step(engine, now)

    def _step(self, engine: Engine, now: float) -> None:
        engine.busy = bool(engine.waiting or engine.running)
        if not engine.busy:
            return
        taken_s, begun, ended, tokens = engine.step()
        self._at(now + taken_s, partial(self._stepped, engine, begun, ended, tokens))

    def _stepped(
        self, engine: Engine, begun: Sequence[Stream], ended: Sequence[Stream], tokens: int, now: float
    ) -> None:
        self.tokens.append((now, tokens))
        for one in begun:
            self.core.handle(FirstToken(1, one.lease.lease_id, now - one.granted_s, 0), now)
        for one in ended:
            usage = Usage(PROMPT_TOKENS, one.generated)
            decisions = self.core.handle(Release(1, LeaseEnd(one.lease.lease_id, Finish.COMPLETE, usage)), now)
            self._granted(decisions, now)
            pause_s = THINK_S * (0.5 + self._chance.random())
            self._at(now + pause_s, partial(self._ask, one.client))
        self._step(engine, now)


def shape_of(name: str, drafts: int, acceptance: float) -> Shape:
    """The shape of a node. Raises ValueError if drafts never pay, or never stop paying."""
    found = node_named(name)
    line = Roofline(found)
    drafting = Drafting(line, head_parameters(Path("no-such-head"), found.model), PROMPT_TOKENS + OUTPUT_TOKENS / 2)
    paying = [batch for batch in range(1, 513) if drafting.gain(batch, drafts, acceptance) >= MIN_GAIN]
    if not paying or paying[-1] == 512:
        raise ValueError(f"{name}: {drafts} drafts of an acceptance of {acceptance} pay at no batch, or at every one")
    off_above = paying[-1]
    return Shape(found, line, drafting, drafts, acceptance, off_above, max(off_above // 8, 1), 2 * off_above)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", default="70b-fp8-2xh100", help="a modelled machine")
    parser.add_argument("--drafts", type=int, default=4, help="of a stream and step")
    parser.add_argument("--acceptance", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    shape = shape_of(arguments.node, arguments.drafts, arguments.acceptance)
    phases = {"low": shape.low * REPLICAS, "peak": shape.peak * REPLICAS, "low again": shape.low * REPLICAS}
    print(
        f"{arguments.node} × {REPLICAS}, {shape.drafts} drafts, acceptance {shape.acceptance:g}: off above "
        f"{shape.off_above} requests a replica; clients {', '.join(f'{name} {n}' for name, n in phases.items())}"
    )
    sums = {name: dict.fromkeys(ARMS, 0.0) for name in phases}
    ratios: dict[str, list[float]] = {name: [] for name in phases}
    switches = []
    for seed in range(arguments.seeds):
        found: dict[str, list[float]] = {}
        for arm in ARMS:
            course = Course(shape, arm, 1_000 + seed)
            found[arm] = course.run(list(phases.values()))
            if arm == "governed":
                switches.append(course.switches)
        for at, name in enumerate(phases):
            ratios[name].append(found["governed"][at] / max(found["on"][at], found["off"][at]))
            for arm in ARMS:
                sums[name][arm] += found[arm][at] / arguments.seeds
    print(f"{'tokens/s':<10} {'on':>10} {'off':>10} {'governed':>10} {'of better':>10}")
    for name, of in sums.items():
        print(f"{name:<10} {of['on']:>10,.0f} {of['off']:>10,.0f} {of['governed']:>10,.0f} {min(ratios[name]):>10.3f}")
    result = {
        "tokens_per_s": {name: {arm: round(value) for arm, value in of.items()} for name, of in sums.items()},
        "worst_ratio": {name: round(min(each), 3) for name, each in ratios.items()},
        "switches": switches,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
