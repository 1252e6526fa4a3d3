"""Who is served by how much when everybody asks for too much for minutes, and times to the first token are promised.

    python -m benchmarks.shares [--seconds 300] [--replicas 4] [--seeds 3] [--load 3] [--cases flood,many]

Modelled 70B engines (see benchmarks.placement: trace, engines, promises) are asked for some times as much as they can
do. Of two organizations `large` has the larger share: while both ask for more than their part, it is to be given so
many times the tokens of `small`, computed prompt tokens and twice the output, as shares count them. Others may ask
beside them; one of them is `offline` and yields. Each case is run on the same requests

- `fifo`: without a queue: engines serve first come, first served (least load);
- `alike`: our core where nobody has a share, which says what shares cost: a share that gives more to long prompts must;
- `shares`: our core with the shares.

In `many` nobody but heavy askers wants all of its part, so `large` is not to be given three times as much: the case is
for goodput. Goodput: requests that kept their promises, per second and engine, those of `offline` not counted. Last
line: JSON {case: {router: {ratio, goodput, kept_tokens, offline_tokens}, wanted, goodput_ratio}}, means of the seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.placement import TRACE
from contracts.service_class import ServiceClass
from engines.performance.engine import EngineLimits
from router.core.fair_queue import OUTPUT_WEIGHT
from tools.simulator.arrival import Arrival
from tools.simulator.competitors import OURS, competitor
from tools.simulator.config import SimulatorConfig
from tools.simulator.outcome import Outcome
from tools.simulator.simulation import Simulation
from tools.simulator.trace import TRACE_BLOCK_TOKENS, read_trace
from tools.simulator.workload import as_tenant, at_rate

KNEE = 2.3
"""The requests per second and engine up to which nine in ten are served as promised."""
LARGE, SMALL, OFFLINE = "tenant-0", "tenant-1", "tenant-2"


class Found(msgspec.Struct, frozen=True):
    """The figures of one run after the warm-up."""

    ratio: float
    """The tokens served to `large` per token served to `small`."""
    goodput: float
    kept_tokens: float
    """Tokens of prompts and answers of requests that kept their promises, per second and engine, without those of
    `offline`."""
    offline_tokens: float
    """The share of all served tokens that `offline` got."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--retries", type=int, default=0, help="how often who is refused comes back when told to")
    parser.add_argument("--load", type=float, default=3.0, help="times the knee")
    parser.add_argument("--cases", default=",".join(CASES))
    arguments = parser.parse_args()
    trace = read_trace(arguments.trace)
    limits = EngineLimits(block_tokens=TRACE_BLOCK_TOKENS)
    found: dict[str, dict[str, object]] = {}
    for case in arguments.cases.split(","):
        rows: dict[str, list[Found]] = {"fifo": [], "alike": [], "shares": []}
        for seed in range(arguments.seeds):
            config = SimulatorConfig(replicas=arguments.replicas, limits=limits, seed=seed, retries=arguments.retries)
            for name, policy in (("fifo", "least_load"), ("alike", OURS), ("shares", OURS)):
                askers = CASES[case]
                if name == "alike":
                    askers = tuple(one._replace(share=1.0) for one in askers)
                traffic = arrivals(trace, config, arguments.load, askers, arguments.seconds)
                outcomes = Simulation(config, competitor(policy, config), traffic).run()
                rows[name].append(judged(outcomes, config, arguments.seconds))
        of_case: dict[str, object] = {name: mean(each) for name, each in rows.items()}
        of_case["wanted"] = CASES[case][0].share
        of_case["goodput_ratio"] = round(
            statistics.fmean(s.goodput / a.goodput for s, a in zip(rows["shares"], rows["alike"], strict=True)), 3
        )
        found[case] = of_case
        for name, each in of_case.items():
            print(f"{case} {name}: {each}", flush=True)
    print(json.dumps(found))


class Asker(NamedTuple):
    """An organization."""

    part: float
    """Its part of the load in tokens: an organization with longer prompts sends fewer of them."""
    share: float = 1.0
    service_class: ServiceClass = ServiceClass.STANDARD
    least_tokens: int = 0
    most_tokens: int = 1 << 31


BATCH = Asker(0.2, 1.0, ServiceClass.OFFLINE)
CASES = {
    "three_to_one": (Asker(0.5, 3.0), Asker(0.5), BATCH),
    "three_to_two": (Asker(0.5, 1.5), Asker(0.5), BATCH),
    "long_prompts": (Asker(0.8, 3.0, least_tokens=16_384), Asker(0.5, most_tokens=16_383), BATCH),
    "short_prompts": (Asker(0.7, 3.0, most_tokens=16_383), Asker(0.5, least_tokens=16_384), BATCH),
    "many": (Asker(0.1, 3.0), Asker(0.1), BATCH, *(Asker(0.05 * number) for number in range(1, 7))),
    "flood": (Asker(0.6, 3.0), Asker(1.8), BATCH),
}


def arrivals(
    trace: Sequence[Arrival], config: SimulatorConfig, load: float, askers: Sequence[Asker], seconds: float
) -> list[Arrival]:
    """The arrivals of all askers, in order of time."""
    merged: list[Arrival] = []
    for number, asker in enumerate(askers):
        kind = [one for one in trace if asker.least_tokens <= one.prompt_tokens <= asker.most_tokens]
        rate = load * asker.part * KNEE * tokens(trace) / tokens(kind)
        copies = int(rate * config.replicas * seconds / len(kind)) + 2
        own = at_rate(kind, rate, config.replicas, copies, config.seed * 3 + number)
        merged += (
            msgspec.structs.replace(one, share=asker.share, priority=asker.service_class.priority)
            for one in as_tenant(own, number)
            if one.at_s < seconds
        )
    return sorted(merged, key=lambda one: one.at_s)


def tokens(some: Sequence[Arrival]) -> float:
    """The mean tokens of an arrival, as shares count them."""
    return statistics.fmean(one.prompt_tokens + OUTPUT_WEIGHT * one.output_tokens for one in some)


def judged(outcomes: Sequence[Outcome], config: SimulatorConfig, seconds: float) -> Found:
    """The figures of the requests that arrived after the warm-up."""
    begin = seconds * config.warm_up
    served: Counter[str] = Counter()
    kept = kept_tokens = 0
    for one in outcomes:
        arrival = one.arrival
        if arrival.at_s < begin:
            continue
        if one.ended_at is not None and one.ended_at <= seconds:
            cost = arrival.prompt_tokens - one.cached_tokens + OUTPUT_WEIGHT * arrival.output_tokens
            served[arrival.organization_id] += int(cost)
        if one.kept and arrival.organization_id != OFFLINE:
            kept += 1
            kept_tokens += arrival.prompt_tokens + arrival.output_tokens
    window = (seconds - begin) * config.replicas
    return Found(
        served[LARGE] / max(served[SMALL], 1),
        kept / window,
        kept_tokens / window,
        served[OFFLINE] / max(served.total(), 1),
    )


def mean(rows: Sequence[Found]) -> dict[str, float]:
    """The means of the seeds."""
    return {name: round(statistics.fmean(getattr(one, name) for one in rows), 3) for name in Found.__struct_fields__}


if __name__ == "__main__":
    main()
