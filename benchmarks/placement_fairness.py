"""What a flood by one tenant does to the others, and what overload does to everyone, on modelled engines.

    python -m benchmarks.placement_fairness [--trace FILE] [--replicas 4] [--seeds 5] [--only flood]

Flood: five tenants each send the trace at a fifth of a comfortable load (see benchmarks.placement for trace, engines
and promises); then one of them sends ten times as much. The others are held against their own first tokens without
that tenant: mean of the seeds' 99th percentiles, and the percentile of all seeds' requests together, for that of one
seed's two hundred is its third slowest. Their refusals are counted beside. Overload: the load rises past the knee, up
to which nine in ten are served as promised, to twice it and further; the peak is the best of all loads up to twice the
knee. Every refusal must say why and when to come back; some clients do come back, once, at the time they were told.

Last line: JSON {flood: {policy: {...}}, overload: {policy: {...}}, refusals: {...}}.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.placement import TRACE
from engines.performance.engine import EngineLimits
from router.core.retry_reservations import HORIZON_S
from tools.simulator.arrival import Arrival
from tools.simulator.competitors import OURS, competitor
from tools.simulator.config import SimulatorConfig
from tools.simulator.course import percentile
from tools.simulator.outcome import Outcome
from tools.simulator.simulation import Simulation
from tools.simulator.sweep import sweep
from tools.simulator.trace import TRACE_BLOCK_TOKENS, read_trace
from tools.simulator.workload import as_tenant, at_rate

TENANTS = 5
COMFORTABLE = 0.9
"""Requests per second and replica of all five together."""
FLOOD = 10
KNEE = 0.9
"""The share of the offered load that is served as promised up to the knee."""
SECONDS = 120.0
LOADS = (1.4, 1.9, 2.3, 2.8, 3.4, 4.6, 5.6)
POLICIES = (OURS, "smg", "dynamo", "least_load")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=("flood", "overload"))
    arguments = parser.parse_args()
    trace = read_trace(arguments.trace)
    config = SimulatorConfig(replicas=arguments.replicas, limits=EngineLimits(block_tokens=TRACE_BLOCK_TOKENS))
    found: dict[str, object] = {}
    if arguments.only != "overload":
        found["flood"] = {policy: flooded(trace, config, policy, arguments.seeds) for policy in POLICIES}
    if arguments.only != "flood":
        found["overload"] = {policy: overloaded(trace, config, policy, arguments.seeds) for policy in POLICIES}
        found["refusals"] = refusals(trace, config)
    print(json.dumps(found))


def tenants(trace: Sequence[Arrival], config: SimulatorConfig, seed: int, factor: float) -> list[Arrival]:
    """The arrivals of all tenants; tenant 0 sends `factor` times as much as each of the others, with 0 nothing."""
    each = COMFORTABLE / TENANTS
    arrivals: list[Arrival] = []
    for number in range(TENANTS):
        rate = each * (factor if number == 0 else 1.0)
        if rate:
            own = begun_in_time(trace, config, rate, seed * TENANTS + number)
            arrivals += as_tenant(own, number)
    return sorted(arrivals, key=lambda one: one.at_s)


def begun_in_time(trace: Sequence[Arrival], config: SimulatorConfig, load: float, seed: int) -> list[Arrival]:
    return [one for one in at_rate(trace, load, config.replicas, 1, seed) if one.at_s < SECONDS]


def run(config: SimulatorConfig, policy: str, arrivals: Sequence[Arrival]) -> list[Outcome]:
    return Simulation(config, competitor(policy, config), arrivals).run()


def others(outcomes: Sequence[Outcome], config: SimulatorConfig) -> tuple[dict[str, float], list[float]]:
    """The figures of all tenants but tenant 0 after the warm-up, and their times to the first token."""
    begin = SECONDS * config.warm_up
    counted = [one for one in outcomes if one.arrival.organization_id != "tenant-0" and one.arrival.at_s >= begin]
    ttft = sorted(one.ttft_s for one in counted if one.ttft_s is not None)
    kept = sum(one.kept for one in counted)
    refused = sum(one.refused_at is not None for one in counted) / len(counted)
    found = {"p99_s": percentile(ttft, 99), "p50_s": percentile(ttft, 50), "kept": kept / len(counted)}
    return found | {"refused": refused}, ttft


def flooded(trace: Sequence[Arrival], config: SimulatorConfig, policy: str, seeds: int) -> dict[str, float]:
    means: Counter[str] = Counter()
    solo_s: list[float] = []
    flood_s: list[float] = []
    for seed in range(seeds):
        seeded = msgspec.structs.replace(config, seed=seed)
        solo, times = others(run(seeded, policy, tenants(trace, seeded, seed, 0)), seeded)
        solo_s += times
        flood = run(seeded, policy, tenants(trace, seeded, seed, FLOOD))
        beside, times = others(flood, seeded)
        flood_s += times
        own = [one for one in flood if one.arrival.organization_id == "tenant-0"]
        refused = sum(one.refused_at is not None for one in own) / len(own)
        found = {f"{state}_{name}": each[name] for name in solo for state, each in (("solo", solo), ("flood", beside))}
        for name, value in (*found.items(), ("flooder_refused", refused)):
            means[name] += value / seeds  # type: ignore[assignment]
    result = {name: round(float(value), 4) for name, value in means.items()}
    result["ratio_p99"] = round(result["flood_p99_s"] / result["solo_p99_s"], 3)
    result["ratio_p99_together"] = round(percentile(sorted(flood_s), 99) / percentile(sorted(solo_s), 99), 3)
    print(
        f"flood x{FLOOD}, {policy:<12} others' TTFT p99 {result['solo_p99_s']:.2f} -> {result['flood_p99_s']:.2f} s "
        f"({result['ratio_p99']:.2f} x, all seeds together {result['ratio_p99_together']:.2f} x; goal 1.2), "
        f"p50 {result['solo_p50_s']:.2f} -> {result['flood_p50_s']:.2f} s, "
        f"promises kept {result['solo_kept']:.1%} -> {result['flood_kept']:.1%}, "
        f"refused {result['solo_refused']:.1%} -> {result['flood_refused']:.1%}; "
        f"flooder refused {result['flooder_refused']:.1%}"
    )
    return result


def overloaded(trace: Sequence[Arrival], config: SimulatorConfig, policy: str, seeds: int) -> dict[str, float]:
    rows = sweep(config, [policy], LOADS, seeds, lambda load, seed: begun_in_time(trace, config, load, seed))
    goodput = {row.load: row.mean("goodput") for row in rows}
    knee = max((row.load for row in rows if goodput[row.load] >= KNEE * row.mean("offered")), default=LOADS[0])
    double = min(LOADS, key=lambda load: abs(load - 2 * knee))
    # beyond twice the knee goodput may rise further, as there is more to choose from: it is no peak to compare with
    peak_at = max((load for load in LOADS if load <= double), key=lambda load: goodput[load])
    share = goodput[double] / goodput[peak_at]
    print(
        f"overload, {policy:<12} knee at {knee:g}, peak {goodput[peak_at]:.3f} at {peak_at:g}; at {double:g}, twice "
        f"the knee, {goodput[double]:.3f}: {share:.0%} of the peak up to there (goal 90 %); "
        f"at {LOADS[-1]:g} {goodput[LOADS[-1]]:.3f}"
    )
    return {"peak": goodput[peak_at], "peak_at": peak_at, "double": goodput[double], "double_at": double,
            "share": round(share, 4), "highest": goodput[LOADS[-1]], "highest_at": LOADS[-1]}  # fmt: skip


def refusals(trace: Sequence[Arrival], config: SimulatorConfig) -> dict[str, float]:
    """Run our core at twice its capacity; clients that are refused come back once."""
    config = msgspec.structs.replace(config, retries=1)
    outcomes = run(config, OURS, begun_in_time(trace, config, LOADS[-1], 0))
    refused = [one for one in outcomes if one.refused_at is not None]
    returned = [one for one in outcomes if one.asked > 1]
    explained = sum(bool(one.code and one.reason) and (one.retry_after_s or 0) > 0 for one in refused)
    taken = sum(one.ended_at is not None for one in returned)
    kept = [one for one in returned if (one.told_first_s or 0.0) < HORIZON_S]
    taken_kept = sum(one.ended_at is not None for one in kept)
    in_time = sum(one.kept for one in kept)
    under_load = [one for one in returned if one not in kept and one.asked_at < SECONDS]
    taken_under_load = sum(one.ended_at is not None for one in under_load)
    first = sum(one.asked == 1 and one.ended_at is not None for one in outcomes) / len(outcomes)
    print(f"refusals: {len(refused)}, of which {explained} say why and when; for example: {refused[-1].reason!r}, come "
          f"back in {refused[-1].retry_after_s:.2f} s" if refused else "no refusals")  # fmt: skip
    print(f"{len(returned)} came back when they were told; {taken / max(len(returned), 1):.0%} were then served "
          f"(newcomers at the same overload: {first:.0%})")  # fmt: skip
    kept_part, promised = taken_kept / max(len(kept), 1), in_time / max(len(kept), 1)
    without = taken_under_load / max(len(under_load), 1)
    print(f"{len(kept)} of them had been told that a place was kept: {kept_part:.0%} were served, {promised:.0%} as "
          f"promised; of those told {HORIZON_S:g} s without a place who came under load ({len(under_load)}), "
          f"{without:.0%} were served")  # fmt: skip
    return {
        "refused": len(refused), "explained": explained, "returned": len(returned), "kept": len(kept),
        "served_kept": round(kept_part, 4), "served_without": round(without, 4),
        "served_on_return": round(taken / max(len(returned), 1), 4), "served_at_first": round(first, 4),
    }  # fmt: skip


if __name__ == "__main__":
    main()
