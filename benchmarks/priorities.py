"""What a class and a share gain at a full pool, beside the same asks without any and beside first come, first served.

    python -m benchmarks.priorities [--grants 4000]

Three organizations keep one engine of eight places full, each with answers of a length of its own: `web` has two
requests at any time, `batch` and `other` forty each; who is answered asks again. The router's core decides on a clock
of its own; an answer takes 2 ms a token. Nothing is promised here, for promises order asks of organizations that were
given alike. Three routers are run on the same requests: a queue in the order of arrival, our core where nobody has a
class or share, and our core where web is interactive and batch offline, or batch has three times the share of other.
Waiting is from the ask to the grant.

Last line: JSON {web_mean_wait_s: {fifo, none, class}, offline_grants_while_others_wait,
batch_to_other_tokens: {fifo, none, share}}.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.lease import LeaseEnd, LeaseRequest
from contracts.service_class import ServiceClass
from contracts.usage import Finish, Usage
from router.config import RouterConfig
from router.core.decisions import Decision, Granted
from router.core.dispatcher import Dispatcher
from router.core.events import Acquire, FirstToken, GatewayConnected, Release, ReplicaPolled, StatePublished
from router.policies import registry

PLACES = 8
PROMPT_TOKENS = 100
TOKEN_S = 0.002
WARM_UP = 0.2
"""The share of the grants that is not counted: at the start no request waits."""
DEADLINE_S = 1e6
"""Long enough that no request is refused: the benchmark measures the order."""


class Asker(NamedTuple):
    """An organization that sends a new request whenever one is answered."""

    requests: int
    """Its requests at any time, waiting and running together."""
    output_tokens: int
    service_class: ServiceClass = ServiceClass.STANDARD
    share: float = 1.0


ALIKE = {"web": Asker(2, 20), "batch": Asker(40, 100), "other": Asker(40, 60)}
CLASSES = {
    "web": ALIKE["web"]._replace(service_class=ServiceClass.INTERACTIVE),
    "batch": ALIKE["batch"]._replace(service_class=ServiceClass.OFFLINE),
    "other": ALIKE["other"],
}
SHARES = ALIKE | {"batch": ALIKE["batch"]._replace(share=3.0)}


class Queue(Protocol):
    """Decides which request is granted next. Each call returns the ids of the leases that it grants."""

    def ask(self, request: LeaseRequest, now: float) -> list[str]: ...

    def over(self, lease_id: str, usage: Usage, now: float) -> list[str]: ...


class Fifo:
    """First come, first served."""

    def __init__(self) -> None:
        self._free = PLACES
        self._waiting: deque[str] = deque()

    def ask(self, request: LeaseRequest, now: float) -> list[str]:
        self._waiting.append(request.lease_id)
        return self._granted()

    def over(self, lease_id: str, usage: Usage, now: float) -> list[str]:
        self._free += 1
        return self._granted()

    def _granted(self) -> list[str]:
        if not self._free or not self._waiting:
            return []
        self._free -= 1
        return [self._waiting.popleft()]


class Core:
    """The router's core in front of one engine."""

    def __init__(self) -> None:
        self._core = Dispatcher(RouterConfig(queue_length=1_000, slos=()), registry.create("prefix"))
        self._core.handle(GatewayConnected(1, "gateway", "epoch"), 0.0)
        pool = Pool("pool", "sglang", (Replica("engine", "http://engine"),), PLACES)
        self._core.handle(StatePublished(DesiredState(1, (Model("m", Tier.CHAT, "pool", 4_096),), (pool,))), 0.0)
        self._core.handle(ReplicaPolled("engine", True), 0.0)

    def ask(self, request: LeaseRequest, now: float) -> list[str]:
        return self._began(self._core.handle(Acquire(1, request), now), now)

    def over(self, lease_id: str, usage: Usage, now: float) -> list[str]:
        return self._began(self._core.handle(Release(1, LeaseEnd(lease_id, Finish.COMPLETE, usage)), now), now)

    def _began(self, decisions: list[Decision], now: float) -> list[str]:
        """The leases granted by `decisions`, and by reporting their first tokens at once: prompts take no time here."""
        granted: list[str] = []
        while decisions:
            assert all(isinstance(one, Granted) for one in decisions), decisions
            fresh = [one.lease.lease_id for one in decisions if isinstance(one, Granted)]
            granted += fresh
            decisions = [
                more for lease_id in fresh for more in self._core.handle(FirstToken(1, lease_id, TOKEN_S, 0), now)
            ]
        return granted


class Found(msgspec.Struct):
    """The figures of one run, by asker. tokens: those it was granted, with output counted double, as in shares."""

    waited_s: dict[str, list[float]]
    grants: Counter[str]
    tokens: Counter[str]


def run(queue: Queue, askers: Mapping[str, Asker], grants: int) -> Found:
    """Run a closed loop, in which each asker sends a new request when one is answered, until `grants` grants."""
    found = Found(defaultdict(list), Counter[str](), Counter[str]())
    asked_at: dict[str, float] = {}
    ends: list[tuple[float, str]] = []
    now, granted = 0.0, 0

    def ask(name: str) -> list[str]:
        asker, lease_id = askers[name], f"{name}-{len(asked_at)}"
        asked_at[lease_id] = now
        request = LeaseRequest(
            lease_id, f"req_{lease_id}", 1, Tier.CHAT, "m", PROMPT_TOKENS, asker.output_tokens, DEADLINE_S,
            organization_id=name, priority=asker.service_class.priority, share=asker.share,
        )  # fmt: skip
        return queue.ask(request, now)

    fresh = [one for name, asker in askers.items() for _ in range(asker.requests) for one in ask(name)]
    while granted < grants:
        while fresh:
            lease_id = fresh.pop()
            name = lease_id.partition("-")[0]
            granted += 1
            if granted > WARM_UP * grants:
                found.waited_s[name].append(now - asked_at[lease_id])
                found.grants[name] += 1
                found.tokens[name] += PROMPT_TOKENS + 2 * askers[name].output_tokens
            heapq.heappush(ends, (now + TOKEN_S * askers[name].output_tokens, lease_id))
        now, lease_id = heapq.heappop(ends)
        name = lease_id.partition("-")[0]
        fresh += queue.over(lease_id, Usage(PROMPT_TOKENS, askers[name].output_tokens, 0), now)
        fresh += ask(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grants", type=int, default=4_000)
    grants = parser.parse_args().grants
    fifo, none = run(Fifo(), ALIKE, grants), run(Core(), ALIKE, grants)
    classes, shares = run(Core(), CLASSES, grants), run(Core(), SHARES, grants)
    for name, found in (("fifo", fifo), ("none", none), ("class", classes), ("share", shares)):
        by_asker = (
            f"{asker} {found.grants[asker]} grants, {mean_s(found, asker)} s, {found.tokens[asker]:,} tokens"
            for asker in ALIKE
        )
        print(f"{name:<6} {'; '.join(by_asker)}")
    print(
        json.dumps(
            {
                "web_mean_wait_s": {
                    name: mean_s(one, "web") for name, one in (("fifo", fifo), ("none", none), ("class", classes))
                },
                "offline_grants_while_others_wait": classes.grants["batch"],
                "batch_to_other_tokens": {
                    name: ratio(one) for name, one in (("fifo", fifo), ("none", none), ("share", shares))
                },
            }
        )
    )


def mean_s(found: Found, name: str) -> float | None:
    """The mean wait of an asker; None if it was granted nothing."""
    waited = found.waited_s[name]
    return round(statistics.fmean(waited), 3) if waited else None


def ratio(found: Found) -> float:
    """The tokens granted to `batch` per token granted to `other`."""
    return round(found.tokens["batch"] / found.tokens["other"], 3)


if __name__ == "__main__":
    main()
