"""Whether the gate (`evals.gate`) keeps what it promises: on answers whose truth is known, and on real ones.

    python -m benchmarks.eval_gate [--quick] [--runs 400] [--equal 50] [--repeats 4] [--parts simulated equal broken]
        [--picture FILE] [--check]

Simulated: answers of a candidate that is equal, and of one that is worse by exactly the margin, over flip shares,
templates that lose together and schedules of looks. How often it fails the one and passes the other, beside lm-eval's
unpaired comparison and a paired test for one look that is looked at repeatedly, on the same answers.

Real: the shipped chat model on the embedded engine, beside itself in another batch and with another seed, at a
temperature at which answers differ, each run on items of its own; and beside itself with each of the seeded defects
(`tools.quantization.defects`), greedily. Caught means failed; inconclusive is not caught. The whole takes an hour or
more of one core, `--quick` minutes.

Last line: JSON. `aa_fail_rate`: equal runs that failed; `defects_caught`, `inconclusive`: shares of the broken runs;
null of what was left out with `--parts`.
--check ends with an error when equal runs fail more often than alpha and chance explain, when fewer than 95 % of the
broken ones are caught, or a simulated share is beyond its bound.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.bounds import add_check, tell
from benchmarks.gated.picture import MARKED, draw
from benchmarks.gated.real import broken_runs, equal_runs
from benchmarks.gated.simulated import BEYOND, SCHEDULES, STRUCTURES, cases, measure, power_curve
from evals.gate import Decision, GateVerdict, SliceRule
from evals.statistics.distributions import beta_cdf
from tools.quantization.defects import seeded

PARTS = ("simulated", "equal", "broken")
GOAL = 0.95
CHANCE = 0.001
"""The probability that a sound gate is reported beyond a bound."""
EQUAL = ("lists", "repeat", "translation", "instructions", "greetings", "arithmetic")
"""Of the slices whose verdicts flip, those that a model answers most quickly."""
BROKEN = (*EQUAL, "facts", "multi-turn", "refusals", "benign", "json", "retrieval-100")
RULE = SliceRule(margin=0.05, first_look=100, budget=200)
"""The rule of the broken runs."""
EQUAL_RULE = SliceRule(margin=0.08, first_look=60, budget=120)
"""The rule of the equal runs, with few enough items for fifty runs in a quarter of an hour on one core."""


def most(runs: int, alpha: float) -> int:
    """The number of failures that a gate with a failure probability of alpha exceeds, in `runs` runs, with a
    probability of at most `CHANCE`."""
    count = 0
    while count < runs and beta_cdf(alpha, count + 1, runs - count) > CHANCE:
        count += 1
    return count


def simulate(runs: int, quick: bool) -> list[str]:
    """Simulate and print the table of rates; returns the shares beyond their bounds."""
    print(f"simulated, {runs} runs a line: equal ones failed, and worse by the margin passed")
    print(
        f"{'looks':>9} {'templates':>20} {'flips':>6} |{'failed: gate':>13} {'repeated':>9} {'unpaired':>9} |"
        f"{'passed: gate':>13} {'repeated':>9} {'unpaired':>9} |{'power':>6} {'items':>6}"
    )
    missed = []
    for rule, clusters, flips in cases(SCHEDULES[:1] if quick else SCHEDULES):
        equal = measure(clusters, flips, 0.0, rule, runs)
        worse = measure(clusters, flips, -rule.margin, rule, runs)
        failed = {name: shares[0] for name, shares in equal.decided.items()}
        passed = {name: shares[1] for name, shares in worse.decided.items()}
        looked = f"{rule.first_look}-{rule.budget}"
        print(
            f"{looked:>9} {clusters!s:>20} {flips:6.1%} |{failed['gate']:13.1%} {failed['repeated']:9.1%} "
            f"{failed['unpaired']:9.1%} |{passed['gate']:13.1%} {passed['repeated']:9.1%} {passed['unpaired']:9.1%} |"
            f"{equal.decided['gate'][1]:6.0%} {equal.items:6.0f}",
            flush=True,
        )
        bound = most(runs, rule.alpha) / runs
        for share, error in ((failed["gate"], "equal failed"), (passed["gate"], "worse by the margin passed")):
            if share > bound and (clusters is not BEYOND or error == "equal failed"):
                missed.append(f"{error} in {share:.1%}, over {bound:.1%}: {looked}, {clusters}, {flips:.1%} flips")
    return missed


def picture(path: Path, runs: int) -> None:
    """Draw power against items, for a margin of 2 points."""
    alone, together = STRUCTURES[0], STRUCTURES[2]
    curves = {f"{flips:.1%} flip": power_curve(flips, alone, MARKED, runs) for flips in (0.0, 0.01, 0.03, 0.1)}
    curves["1.0%, 30 templates"] = power_curve(0.01, together, MARKED, runs)
    path.write_text(draw("Equal candidates that pass, margin 2 points", curves))


def run_equal(count: int) -> list[GateVerdict]:
    """Compare the model with itself `count` times."""
    verdicts = []
    began = time.monotonic()
    for verdict in equal_runs(range(count), dict.fromkeys(EQUAL, EQUAL_RULE)):
        verdicts.append(verdict)
        flips = sum(one.flip_share * one.n for one in verdict.slices) / max(1, sum(one.n for one in verdict.slices))
        items = sum(one.n for one in verdict.slices)
        print(
            f"equal {len(verdicts):3}  {verdict.decision:12} {items} items, {flips:.2%} flipped  "
            f"{time.monotonic() - began:5.0f} s  {verdict.reason}",
            flush=True,
        )
    return verdicts


def run_broken(repeats: int) -> list[GateVerdict]:
    """Compare the model with itself broken, and print the table of each slice's verdicts."""
    found: dict[str, list[GateVerdict]] = defaultdict(list)
    for defect, verdict in broken_runs(seeded(), repeats, dict.fromkeys(BROKEN, RULE)):
        found[defect.name].append(verdict)
        print(f"{defect.name:28} {verdict.decision:12} {verdict.reason}", flush=True)
    print(f"\nfailed by slice when the gate failed, of {repeats}; mean difference in points")
    wide = max(len(name) for name in BROKEN) + 1
    print(" " * 28 + "".join(f"{name:>{wide}}" for name in sorted(BROKEN)) + f"{'caught':>8}")
    for name, verdicts in found.items():
        cells = []
        for index in range(len(BROKEN)):
            seen = [verdict.slices[index] for verdict in verdicts]
            failed = sum(one.decision is Decision.FAIL for one in seen)
            mean = 100 * sum(one.difference for one in seen) / len(seen)
            cells.append(f"{failed} ({mean:+.0f})".rjust(wide))
        caught = sum(verdict.decision is Decision.FAIL for verdict in verdicts)
        print(f"{name:28}" + "".join(cells) + f"{caught}/{len(verdicts)}".rjust(8))
    return [verdict for verdicts in found.values() for verdict in verdicts]


def share(verdicts: list[GateVerdict], decision: Decision) -> float | None:
    """The share of the verdicts with this decision; None if there are no verdicts."""
    if not verdicts:
        return None
    return round(sum(verdict.decision is decision for verdict in verdicts) / len(verdicts), 4)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs and slices: minutes")
    parser.add_argument("--runs", type=int, help="simulated, of each kind; 400, or 100 with --quick")
    parser.add_argument("--equal", type=int, help="real runs of the model beside itself; 50, or 4 with --quick")
    parser.add_argument("--repeats", type=int, help="of each defect; 4, or 1 with --quick")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--picture", type=Path, help="write power against items to this SVG")
    add_check(parser)
    arguments = parser.parse_args()
    quick: bool = arguments.quick
    runs: int = arguments.runs or (100 if quick else 400)
    missed = simulate(runs, quick) if "simulated" in arguments.parts else []
    if arguments.picture is not None:
        picture(arguments.picture, runs)
    equal = run_equal(arguments.equal or (4 if quick else 50)) if "equal" in arguments.parts else []
    broken = run_broken(arguments.repeats or (1 if quick else 4)) if "broken" in arguments.parts else []
    failed, caught = share(equal, Decision.FAIL), share(broken, Decision.FAIL)
    print(
        json.dumps(
            {"aa_fail_rate": failed, "defects_caught": caught, "inconclusive": share(broken, Decision.INCONCLUSIVE)}
        )
    )
    if failed is not None and failed * len(equal) > most(len(equal), EQUAL_RULE.alpha):
        missed.append(f"{failed:.1%} of {len(equal)} equal runs failed, alpha is {EQUAL_RULE.alpha:.0%}")
    if caught is not None and caught < GOAL:
        missed.append(f"{caught:.1%} of the broken runs caught, under {GOAL:.0%}")
    tell(missed, arguments.check)


if __name__ == "__main__":
    main()
