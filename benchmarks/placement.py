"""Placement policies beside each other on a recorded trace at rising load, against modelled engines.

    python -m benchmarks.placement [--trace FILE] [--replicas 8] [--seeds 5] [--jobs 2] [--plot FILE.svg]
        [--check]

The trace (Mooncake's or Azure's format; default: half an hour of Mooncake conversations) is replayed faster and faster
against replicas of a modelled 70B FP8 node (`--node`), whose true speeds differ by ± 30 % without any router being
told. With more than 8 replicas, copies of the trace with no prefix in common run side by side. A load is in requests
per second and replica; by default loads are shares of what replicas could prefill if every reusable prefix were hit.

`round_robin`, `least_load`, `consistent_hash`: ordinary load balancers. `smg`, `smg_events`: smg's cache_aware rule
with its command line's defaults, by tree and by KV events. `dynamo`: Dynamo's cost function, KV events, defaults.
`llm_d`: llm-d's scorers. None of these queues or refuses by default, and so it is here: requests wait in the engine.
`smg:20`: with `--max-concurrent-requests` of 20 per engine and no queue, the best of the caps and queues tried on this
trace. `dynamo:5000`: with its documentation's conservative rejection, 5,000 prefill tokens a worker. `ours`: the core
as it is deployed. `core:NAME`: the same core, its queue and its admission with another policy, among them smg's rule
and "most of the prompt cached", to see what placement adds. `bound`: the hit rate of one pooled cache with foresight.

Goodput counts requests whose first token came within the promise of their prompt's length (up to 4k tokens 0.7 s, 16k
2 s, 64k 5 s, longer 15 s) and whose later ones came within 40 ms on average. Ours alone is told these times; the others
have no place to tell them. The knee is the load at which the best of the others does best; no policy can be better
there than serving everything, and that ratio is printed as the most that could be had. Beside it stands our own knee,
the highest load at which nine in ten are served as promised, and for each the load up to which it serves nine in ten
so, between the loads in straight lines: what DistServe (Zhong et al. 2024) calls goodput. A request of 100,000 tokens
counts there like one of 100, so the same is printed for prompt tokens, for output tokens and for the worst length
class. Last line: JSON {policy: {load: {goodput, kept, kept_prompt_tokens, kept_output_tokens, kept_by_length, hit_rate,
ttft_p99_ms, shed}}}.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import msgspec

from benchmarks.bounds import add_check, tell
from engines.performance.catalog import node, nodes
from engines.performance.engine import EngineLimits
from engines.performance.roofline import Roofline
from tools.simulator.arrival import Arrival
from tools.simulator.bound import clairvoyant_hit_rate
from tools.simulator.chart import chart
from tools.simulator.competitors import OURS
from tools.simulator.config import SimulatorConfig
from tools.simulator.summary import Summary
from tools.simulator.sweep import Row, run_once
from tools.simulator.table import table
from tools.simulator.trace import TRACE_BLOCK_TOKENS, read_trace
from tools.simulator.workload import at_rate

TRACE = Path(__file__).parent / "traces" / "mooncake_conversation_30min.jsonl.xz"
OTHERS = (
    "round_robin", "least_load", "consistent_hash", "smg", "smg_events", "dynamo", "llm_d", "smg:20", "dynamo:5000",
)  # fmt: skip
ABLATIONS = ("core:round_robin", "core:least_load", "core:consistent_hash", "core:smg", "core:most_cached")
MEASURES: dict[str, Callable[[Row], float]] = {
    "requests": lambda row: row.kept,
    "prompt tokens": lambda row: row.mean("kept_prompt_tokens"),
    "output tokens": lambda row: row.mean("kept_output_tokens"),
    "requests of every length class": lambda row: min(row.kept_by_length),
}
"""By what is counted, the share of it that is served as promised."""
SHARES = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.2)
"""The default loads, as shares of the prefill capacity."""
REPLICAS_PER_COPY = 8
MODERATE = 0.6
"""The share of the knee's load at which the hit rate is compared with the bound."""
KNEE = 0.9
"""The share of the offered load that is served as promised up to our knee."""
FURTHER = 1.3
"""The least ratio of our `capacity` in requests to that of the best of the others (ADR 12)."""
BOUND = "bound"


def main() -> None:
    arguments = parsed()
    trace = read_trace(arguments.trace)[: arguments.requests]
    config = SimulatorConfig(
        node=arguments.node, replicas=arguments.replicas, limits=EngineLimits(block_tokens=TRACE_BLOCK_TOKENS)
    )
    policies = tuple(arguments.policies.split(",")) if arguments.policies else (*OTHERS, *ABLATIONS, OURS)
    loads = [float(load) for load in arguments.loads.split(",")] if arguments.loads else default_loads(trace, config)
    print(
        f"{arguments.trace.name}: {len(trace):,} requests; {config.replicas} × {config.node}; {arguments.seeds} seeds"
    )
    part = (arguments.trace, arguments.requests)
    rows = measured(config, policies, loads, arguments.seeds, arguments.jobs, part)
    bounds = {load: bound(workload(part, config.replicas, load, 0), config) for load in loads}
    print(table(rows, wide=True))
    for load in loads:
        boundless, pooled = bounds[load]
        print(f"{load:6g} {BOUND:<20} hit rate {pooled:.3f} (one pooled cache); {boundless:.3f} (boundless cache)")
    if OURS in policies:
        verdict(rows, bounds)
    if arguments.plot is not None:
        arguments.plot.write_text(chart(f"{arguments.trace.stem} on {config.replicas} × {config.node}", rows))
    print(json.dumps(as_json(rows, bounds)))
    tell(missed(rows), arguments.check)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1 << 40, help="only the first so many of the trace")
    parser.add_argument("--loads", default="", help="requests/s per replica, commas between")
    parser.add_argument("--policies", default="", help="commas between")
    parser.add_argument("--node", default="70b-fp8-8xh100", choices=sorted(nodes()))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--plot", type=Path)
    add_check(parser)
    return parser.parse_args()


def default_loads(trace: Sequence[Arrival], config: SimulatorConfig) -> list[float]:
    """`SHARES` of the rate at which a nominal replica would be busy with the prompt tokens that no cache can save."""
    roofline = Roofline(node(config.node))
    seen: set[bytes] = set()
    busy_s = 0.0
    for arrival in trace:
        known = next((count for count, block in enumerate(arrival.blocks) if block not in seen), len(arrival.blocks))
        cached = min(known * TRACE_BLOCK_TOKENS, arrival.prompt_tokens - 1)
        busy_s += roofline.prefill_s(arrival.prompt_tokens - cached, cached)
        seen.update(arrival.blocks)
    return [float(f"{share * len(trace) / busy_s:.2g}") for share in SHARES]


@functools.cache
def workload(part: tuple[Path, int], replicas: int, load: float, seed: int) -> list[Arrival]:
    """The arrivals at a load, computed once per process, load and seed. part: a trace, and how many of its requests."""
    path, first = part
    return at_rate(read_trace(path)[:first], load, replicas, max(1, replicas // REPLICAS_PER_COPY), seed)


def one(part: tuple[Path, int], config: SimulatorConfig, policy: str, load: float) -> Summary:
    return run_once(config, policy, workload(part, config.replicas, load, config.seed))


def measured(
    config: SimulatorConfig,
    policies: Sequence[str],
    loads: Sequence[float],
    seeds: int,
    jobs: int,
    part: tuple[Path, int],
) -> list[Row]:
    found: dict[tuple[str, float, int], Summary] = {}
    with ProcessPoolExecutor(jobs) as pool:
        running = {
            pool.submit(one, part, msgspec.structs.replace(config, seed=seed), policy, load): (policy, load, seed)
            for load in loads
            for seed in range(seeds)
            for policy in policies
        }
        for count, future in enumerate(as_completed(running), 1):
            found[running[future]] = future.result()
            print(f"\r  {count} of {len(running)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [
        Row(policy, load, tuple(found[policy, load, seed] for seed in range(seeds)))
        for load in loads
        for policy in policies
    ]


def bound(arrivals: Sequence[Arrival], config: SimulatorConfig) -> tuple[float, float]:
    """The hit rates of a boundless cache, and of one as large as those of all replicas together."""
    capacity = config.replicas * node(config.node).kv_capacity_tokens
    boundless, pooled = (
        clairvoyant_hit_rate(arrivals, tokens, TRACE_BLOCK_TOKENS, config.warm_up) for tokens in (0, capacity)
    )
    return boundless, pooled


def verdict(rows: Sequence[Row], bounds: dict[float, tuple[float, float]]) -> None:
    """Print ours against the best of the others: at the knee, at every load, and its hit rate against the bound's."""
    loads = sorted(bounds)
    ours = {row.load: row for row in rows if row.policy == OURS}
    for title, others in (("the others", [row for row in rows if row.policy in OTHERS]), ("our core with a simpler "
        "policy", [row for row in rows if row.policy in ABLATIONS])):  # fmt: skip
        if not others:
            continue
        best = {load: max((r for r in others if r.load == load), key=lambda r: r.mean("goodput")) for load in loads}
        knee = max(loads, key=lambda load: best[load].mean("goodput"))
        print(f"\nAgainst the best of {title}:")
        for load in loads:
            mine, theirs = ours[load].mean("goodput"), best[load].mean("goodput")
            word = "LOSES" if beats(best[load], ours[load]) else "wins" if beats(ours[load], best[load]) else "ties"
            word = word if len(ours[load].runs) > 1 else "(one seed)"
            ratio = f"{mine / theirs:6.2f} x" if theirs > 0.01 else "   (0)  "
            mark = "  <- knee" if load == knee else ""
            most = f", at most {ours[load].mean('offered') / theirs:.2f} x" if theirs > 0.01 else ""
            against = f"{mine:.3f} against {theirs:.3f} ({best[load].policy})"
            print(f"  load {load:5g}: {against}: {ratio} {word}{most}{mark}")
        own = max((load for load in loads if ours[load].kept >= KNEE), default=loads[0])
        print(f"  our knee: {own:g}, where {ours[own].kept:.0%} of ours are served as promised and of the best of the "
              f"others {best[own].kept:.0%}")  # fmt: skip
        for measure, kept in MEASURES.items():
            name, theirs = furthest(others, kept)
            mine = capacity(list(ours.values()), kept)
            print(f"  nine in ten {measure} served as promised up to {mine:.2f} against {theirs:.2f} ({name}): "
                  f"{mine / theirs:.2f} x")  # fmt: skip
        peak = max(ours[load].mean("goodput") for load in loads)
        print(f"  peak against peak: {peak / best[knee].mean('goodput'):.2f} x")
    lost = [row for row in rows if row.policy in OTHERS]
    knee = max(lost or list(ours.values()), key=lambda row: row.mean("goodput")).load
    moderate = min(loads, key=lambda load: abs(load - MODERATE * knee))
    reached, pooled = ours[moderate].mean("hit_rate"), bounds[moderate][1]
    if pooled:
        print(
            f"\nHit rate at a moderate load of {moderate:g}: {reached:.3f}, {reached / pooled - 1:+.1%} to the bound's"
        )
    for field, better in (("ttft_p50_ms", min), ("ttft_p99_ms", min), ("hit_rate", max), ("imbalance", min)):
        for load in loads:
            champion = better((row for row in lost if row.load == load), key=lambda row: row.mean(field), default=None)
            if champion is not None and better(champion.mean(field), ours[load].mean(field)) == champion.mean(field):
                theirs, mine = champion.mean(field), ours[load].mean(field)
                print(f"  behind at load {load:g}: {field} {mine:,.3g} against {theirs:,.3g} ({champion.policy})")


def missed(rows: Sequence[Row]) -> list[str]:
    """The promises of ADR 12 that these runs do not show."""
    ours = {row.load: row for row in rows if row.policy == OURS}
    others = [row for row in rows if row.policy in OTHERS]
    if not ours or not others:
        return ["nothing shown: ours and at least one of the others must be run"]
    found = [
        f"load {row.load:g}: goodput {mine.mean('goodput'):.3f} against {row.mean('goodput'):.3f} of {row.policy}"
        for row in others
        if beats(row, mine := ours[row.load])
    ]
    requests = MEASURES["requests"]
    own, (name, theirs) = capacity(list(ours.values()), requests), furthest(others, requests)
    if not own >= FURTHER * theirs:
        found.append(
            f"nine in ten requests served as promised up to {own:.2f}, less than {FURTHER:g} x {theirs:.2f} ({name})"
        )
    return found


def beats(one: Row, other: Row) -> bool:
    """Whether the goodput of `one` is higher by more than both intervals, which are 0 with one seed."""
    return one.mean("goodput") > other.mean("goodput") + one.error("goodput") + other.error("goodput")


def furthest(rows: Sequence[Row], kept: Callable[[Row], float]) -> tuple[str, float]:
    """The policy with the highest `capacity`, and its capacity."""
    loads = {name: capacity([row for row in rows if row.policy == name], kept) for name in {r.policy for r in rows}}
    return max(loads.items(), key=lambda item: item[1])


def capacity(rows: Sequence[Row], kept: Callable[[Row], float]) -> float:
    """The load up to which nine in ten are served as promised; the highest load if they always are."""
    rows = sorted(rows, key=lambda row: row.load)
    before_load, before_kept = 0.0, 1.0
    for row in rows:
        if kept(row) < KNEE:
            share = (before_kept - KNEE) / (before_kept - kept(row))
            return before_load + (row.load - before_load) * share
        before_load, before_kept = row.load, kept(row)
    return before_load


def as_json(rows: Sequence[Row], bounds: dict[float, tuple[float, float]]) -> dict[str, dict[str, object]]:
    result: dict[str, dict[str, object]] = {}
    for row in rows:
        means = ("goodput", "kept_prompt_tokens", "kept_output_tokens", "hit_rate", "ttft_p99_ms", "shed")
        result.setdefault(row.policy, {})[f"{row.load:g}"] = {
            "kept": round(row.kept, 4),
            "kept_by_length": [round(part, 4) for part in row.kept_by_length],
            **{field: round(row.mean(field), 4) for field in means},
        }
    result[BOUND] = {
        f"{load:g}": {"goodput": None, "hit_rate": round(pooled, 4), "ttft_p99_ms": None, "shed": None}
        for load, (_, pooled) in bounds.items()
    }
    return result


if __name__ == "__main__":
    main()
