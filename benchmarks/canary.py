"""Canary judges beside each other on simulated rollouts: ours as deployed, Flagger's and Argo Rollouts' rules.

    python -m benchmarks.canary [--quick] [--share 1.0] [--jobs 2] [--only PART] [--plot FILE.svg] [--check]

A rollout is hours of sessions on two equal arms (`canary_rollouts/traffic.py`), looked at every minute through
`control.releases.judge` with the default policy. `1 rps`: one request a second in the candidate's arm, through all
stages. `ladder`: 1, then 5, then 25 a second, as 1, 5 and 25 % of 100 would be. `clustered`: sessions of 20
requests, 80 % of whose latency's variance is the session's own. `stalls`: every replica of both arms stops for ten
seconds twice an hour. Rivals' parameters are in `canary_rollouts/rivals.py`.

Told per judge: rolled back (with a 95 % interval; "in the end": had nothing been promoted for the whole time), by when
half and 95 % of all rollouts were, promoted to all traffic, and after how long in the middle. Seeds are fixed.

`false_rollback`: of unchanged releases, of clustered sessions too, the largest share. `false_promotion`: of releases
exactly at the margin (all of TTFT + 10 %, only its p99 + 10 %, gaps + 10 %, errors + half a point, broken objectives
+ two points), the largest. `median_minutes_1rps` and `p95_minutes_10rps`: until a release with TTFT + 30 % or a point
of errors more was rolled back, the longer of both; `tail_median_minutes_1rps` and `tail_p95_minutes_10rps`: until one
with only its p99 of TTFT + 30 % was; null when not so many were. Before them: what no judge can do better about such a
tail (`canary_rollouts/bound.py`). `--check` holds the first four against 5 %, 5 %, 20 and 10, and those of the tail
against what the documentation says they are. Last line: JSON of these six.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.bounds import add_check, tell
from benchmarks.canary_rollouts.bound import Bound
from benchmarks.canary_rollouts.picture import CURVE, draw
from benchmarks.canary_rollouts.rivals import ARGO, FLAGGER
from benchmarks.canary_rollouts.rollout import OURS, Ending, play
from benchmarks.canary_rollouts.summary import at_share, line, promoted, rolled_back, rolled_back_minutes
from benchmarks.canary_rollouts.traffic import Change, Traffic
from control.releases.judge import Policy

FIRST_SEED = 1_000_000
"""No choice was based on rollouts from this seed on."""
RIVALS = (FLAGGER, ARGO)

ONE = Traffic("1 rps", (1.0,), 4.0)
TEN = Traffic("10 rps", (10.0,), 1.0)
TEN_LONG = Traffic("10 rps", (10.0,), 2.0)
LADDER = Traffic("ladder", (1.0, 5.0, 25.0), 2.0)
ONE_CLUSTERED = Traffic("1 rps, clustered", (1.0,), 4.0, 20.0, 0.8)
STALLING = (
    Traffic("1 rps, one replica an arm, which stalls", (1.0,), 2.0, replicas=1),
    Traffic("1 rps, four replicas that stall", (1.0,), 2.0, replicas=4),
    Traffic("10 rps, one replica an arm, which stalls", (10.0,), 0.5, replicas=1),
    Traffic("10 rps, eight replicas that stall", (10.0,), 0.5, replicas=8),
)
TEN_CLUSTERED = Traffic("10 rps, clustered", (10.0,), 1.0, 20.0, 0.8)

UNCHANGED = Change()
SLOW = Change("TTFT +30 %", ttft=1.3)
FAILING = Change("errors +1 point", errors=0.01)
AT_MARGIN = Change("TTFT +10 %", ttft=1.1)
TAIL_AT_MARGIN = Change("TTFT p99 alone +10 %", tail=1.1)
ERRORS_AT_MARGIN = Change("errors +0.5 points", errors=0.005)
GAPS_AT_MARGIN = Change("gaps +10 %", itl=1.1)
GOODPUT_AT_MARGIN = Change("broken objectives +2 points", broken=0.02)
TAIL = Change("TTFT p99 alone +30 %", tail=1.3)
BETTER = Change("TTFT -30 %", ttft=0.7)


FACTORS = (0.8, 0.9, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3)
"""Factors of TTFT over which the operating curve is drawn."""


class Scenario(NamedTuple):
    """Rollouts of one kind. held: rollouts continue after their promotion."""

    part: str
    traffic: Traffic
    change: Change
    rollouts: int
    quick: int
    held: bool = False


SCENARIOS = (
    Scenario("worse", ONE, SLOW, 300, 40),
    Scenario("worse", ONE, FAILING, 300, 40),
    Scenario("worse", TEN, SLOW, 300, 40),
    Scenario("worse", TEN, FAILING, 300, 40),
    Scenario("unchanged", ONE, UNCHANGED, 1000, 12, held=True),
    Scenario("unchanged", TEN, UNCHANGED, 1000, 12),
    Scenario("margin", ONE, AT_MARGIN, 300, 8),
    Scenario("margin", TEN, AT_MARGIN, 300, 8),
    Scenario("margin", ONE, TAIL_AT_MARGIN, 300, 8),
    Scenario("margin", TEN, TAIL_AT_MARGIN, 300, 8),
    *(
        Scenario("margin", traffic, change, 300, 8)
        for change in (ERRORS_AT_MARGIN, GAPS_AT_MARGIN, GOODPUT_AT_MARGIN)
        for traffic in (ONE, TEN)
    ),
    Scenario("good", TEN_LONG, UNCHANGED, 100, 4),
    Scenario("good", ONE, BETTER, 50, 4),
    Scenario("good", TEN_LONG, BETTER, 50, 4),
    Scenario("good", LADDER, UNCHANGED, 50, 4),
    Scenario("good", LADDER, BETTER, 50, 4),
    *(Scenario(CURVE, TEN, Change(f"TTFT x {factor}", ttft=factor), 60, 2) for factor in FACTORS),
    *(Scenario(CURVE, ONE, Change(f"TTFT x {factor}", ttft=factor), 60, 2) for factor in FACTORS),
    Scenario("tail", ONE, TAIL, 300, 20),
    Scenario("tail", TEN_LONG, TAIL, 300, 20),
    Scenario("clustered", ONE_CLUSTERED, UNCHANGED, 150, 4),
    Scenario("clustered", TEN_CLUSTERED, UNCHANGED, 150, 4),
    Scenario("clustered", ONE_CLUSTERED, SLOW, 60, 4),
    Scenario("clustered", TEN_CLUSTERED, SLOW, 60, 4),
    *(Scenario("stalls", traffic, UNCHANGED, 60, 4) for traffic in STALLING),
)
RESULT = dict[str, list[Ending]]
BOUNDS = {
    "false_rollback": 0.05,
    "false_promotion": 0.05,
    "median_minutes_1rps": 20,
    "p95_minutes_10rps": 10,
    # for a tail alone: the result of Slipstream's judge plus a quarter
    "tail_median_minutes_1rps": 135,
    "tail_p95_minutes_10rps": 40,
}
ASKED_OF_TAILS = ((ONE, 20, 0.5), (TEN, 10, 0.95))
"""Traffic, minute and the share of releases with only a worse tail to be rolled back by then."""


def figures(results: Mapping[Scenario, RESULT]) -> dict[str, float | None]:
    """The figures of the last line; None if not measured, or if too few were rolled back."""

    def minutes(part: str, traffic: Traffic, share: float) -> float | None:
        found = [
            at_share(rolled_back_minutes(result[OURS]), share)
            for scenario, result in results.items()
            if scenario.part == part and scenario.traffic is traffic
        ]
        return max(found) if found and not math.isinf(max(found)) else None

    unchanged = [
        rolled_back(result[OURS])
        for scenario, result in results.items()
        if scenario.part in ("unchanged", "clustered") and scenario.change is UNCHANGED
    ]
    margin = [promoted(result[OURS]) for scenario, result in results.items() if scenario.part == "margin"]
    return {
        "false_rollback": max(unchanged, default=None),
        "false_promotion": max(margin, default=None),
        "median_minutes_1rps": minutes("worse", ONE, 0.5),
        "p95_minutes_10rps": minutes("worse", TEN, 0.95),
        "tail_median_minutes_1rps": minutes("tail", ONE, 0.5),
        "tail_p95_minutes_10rps": minutes("tail", TEN_LONG, 0.95),
    }


def missed(found: Mapping[str, float | None]) -> list[str]:
    """The promised bounds that are not kept."""
    values = ((name, found[name], bound) for name, bound in BOUNDS.items())
    return [
        f"{name}: {value} is not at most {bound}" for name, value, bound in values if value is None or value > bound
    ]


def _play(scenario: Scenario, seed: int) -> dict[str, Ending]:
    # rivals have steps of their own, so their traffic would differ from the ladder's
    rivals = RIVALS if len(scenario.traffic.rates) == 1 else ()
    return play(scenario.traffic, scenario.change, seed, held=scenario.held, rivals=rivals)


def tail_bounds() -> Iterator[str]:
    """Sentences with the limits of every judge if only the p99 of TTFT is 30 % worse."""
    policy = Policy()
    for traffic, minute, share in ASKED_OF_TAILS:
        bound = Bound(TAIL, policy.tolerance, max(traffic.rates))
        for name, alpha in (("all of alpha", policy.alpha), ("TTFT's part of it", policy.alpha_of("ttft"))):
            gambler = bound.gambler(share, alpha, int(60 * traffic.hours))
            yield (
                f"bound, {traffic.name}, {TAIL.name}, {name} ({alpha:.2%}): any test has rolled back at most "
                f"{bound.most_by(minute, alpha):.1%} by minute {minute}, and {share:.0%} by minute "
                f"{bound.earliest(share, alpha)} at the earliest, if it looks then alone; a gambler who knows the "
                f"change and looks every minute {share:.0%} by {gambler:.0f}"
            )


def main() -> None:
    """Play all scenarios, print their table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="some rollouts of each kind: no figure to be quoted")
    parser.add_argument("--share", type=float, default=1.0, help="so much of the rollouts of each kind")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", help="a part: " + ", ".join(dict.fromkeys(one.part for one in SCENARIOS)))
    parser.add_argument("--plot", type=Path, help="file for the operating curve, SVG")
    add_check(parser)
    options = parser.parse_args()
    results: dict[Scenario, RESULT] = {}
    print("| judge | rolled back | half by | 95 % by | promoted | after |\n|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.jobs) as processes:
        for number, scenario in enumerate(SCENARIOS):
            if options.only not in (None, scenario.part):
                continue
            count = scenario.quick if options.quick else max(1, round(options.share * scenario.rollouts))
            # every scenario has rollouts of its own, so that chance in one does not affect the next
            seeds = itertools.islice(itertools.count(FIRST_SEED * (number + 1)), count)
            played = list(processes.map(functools.partial(_play, scenario), seeds, chunksize=4))
            results[scenario] = {name: [one[name] for one in played] for name in played[0]}
            print(f"| **{scenario.traffic.name}, {scenario.change.name}**, {count} of {scenario.traffic.hours:g} h |")
            for name, endings in results[scenario].items():
                print(line(name, endings), flush=True)
    if options.plot:
        options.plot.write_text(draw({(one.traffic.name, one.change.ttft): result for one, result in results.items()
                                      if one.part == CURVE}))  # fmt: skip
        print(f"wrote {options.plot}", file=sys.stderr)
    if options.only in (None, "tail"):
        print("\n".join(tail_bounds()))
    found = figures(results)
    if options.only is None:
        tell(missed(found), options.check)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
