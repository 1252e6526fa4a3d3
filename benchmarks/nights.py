"""Whether nights (`evals.nights`) conclude: a broken model is reported by the third night, an equal one is not.

    python -m benchmarks.nights [--quick] [--repeats 20] [--seasons 100] [--keep FILE] [--check]

The shipped chat model answers 160 items of each of 12 slices on the embedded engine: sound, with each of the seeded
defects (`tools.quantization.defects`), and four times at temperature 1. A night is a choice among those answers: a
panel of four parts of 40 items, drawn again for each repeat, of which a night asks one, as `evals.items` and
`control.evals.store.panel_seed` have it.

Broken: eight sound nights, then up to three of a defect, once as a version that is recorded and once as one that is
not. Equal: seasons of 50 nights after the panel's first round, each answer drawn from four at temperature 1, which is
noisier than engines are; and the same at 20 times the alarms that a night may raise, where alarms can be counted.

Last line: JSON. `defects_by_night_3`: share of broken runs that failed by the third night;
`false_alarms_in_50_equal_nights`: share of equal seasons with a fail, the bound is 0.05; `inconclusive`: share of the
verdicts on slices of equal nights that decide nothing. About ten minutes of one core; --keep holds the answers
between runs. --check ends with an error where fewer than 95 % of the defects are reported, or alarms exceed their
bound by more than chance explains.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path

import msgspec

from benchmarks.bounds import add_check, tell
from benchmarks.eval_gate import BROKEN, most
from benchmarks.gated.nightly_scores import Asking, Kept, Scores, scores
from control.eval_runs.config import EvalsConfig
from control.evals.store import PANEL_PARTS
from evals.gate import Decision
from evals.nights import Night, NightRule, NightVerdict, SliceNight, judge
from tools.quantization.defects import seeded

ITEMS = EvalsConfig().items
SOUND_NIGHTS, BROKEN_NIGHTS, SEASON = 8, 3, 50
GOAL = 0.95
RULE = NightRule()
COUNTED = 20
"""The factor on a night's alarms at which they are frequent enough to count."""
FIRST = date(2026, 1, 1)
Panel = Mapping[str, list[list[int]]]
"""The items of each part, by slice."""


def panel(draw: random.Random, kept: Kept) -> Panel:
    """Draw a panel: disjoint parts of each slice's items."""
    parts = {}
    for name in kept.asking.slices:
        order = list(range(kept.asking.items))
        draw.shuffle(order)
        parts[name] = [order[part * ITEMS : (part + 1) * ITEMS] for part in range(PANEL_PARTS)]
    return parts


def night(day: int, parts: Panel, answers: Scores, version: str) -> Night:
    """The night of a day, with these answers."""
    slices = {
        name: SliceNight("1", {item: answers[name][item] for item in parts[name][day % PANEL_PARTS]}) for name in parts
    }
    return Night(night=FIRST + timedelta(days=day), version={"pool": version}, slices=slices)


def reported(kept: Kept, defect: str, repeat: int, version: str) -> tuple[int | None, NightVerdict]:
    """The number, from 1, of the night that reports a defect, None if none of three does; and the last verdict."""
    parts = panel(random.Random(f"{defect}/{repeat}"), kept)
    nights = [night(day, parts, kept.sound, "sound") for day in range(SOUND_NIGHTS)]
    for number in range(1, BROKEN_NIGHTS + 1):
        nights.append(night(len(nights), parts, kept.broken[defect], version))
        verdict = judge(nights, RULE)
        if verdict.decision is Decision.FAIL:
            return number, verdict
    return None, verdict


def broken(kept: Kept, repeats: int) -> float:
    """Judge the defects and print their table; returns the share that was reported."""
    print(f"{'defect':24} {'version':>10} | night 1, 2, 3, never, of {repeats}; slices that failed")
    found = 0
    for defect in kept.broken:
        for version, named in (("broken", "recorded"), ("sound", "silent")):
            numbers: Counter[int | None] = Counter()
            failed: Counter[str] = Counter()
            for repeat in range(repeats):
                number, verdict = reported(kept, defect, repeat, version)
                numbers[number] += 1
                failed.update(one.slice for one in verdict.failed)
            by_night = ", ".join(f"{numbers[each]:3}" for each in (1, 2, 3, None))
            by_slice = ", ".join(f"{name} {count}" for name, count in failed.most_common())
            print(f"{defect:24} {named:>10} | {by_night}   {by_slice}", flush=True)
            found += repeats - numbers[None]
    return found / (2 * repeats * len(kept.broken))


def season(kept: Kept, repeat: int, rule: NightRule) -> Iterator[NightVerdict]:
    """The verdicts on 50 equal nights after the panel's first round."""
    draw = random.Random(f"equal/{repeat}")
    parts = panel(draw, kept)
    nights: list[Night] = []
    looks_back = rule.history_nights + max(rule.windows)
    for day in range(PANEL_PARTS + SEASON):
        answers = {name: [draw.choice(kept.drawn)[name][item] for item in range(kept.asking.items)] for name in parts}
        nights.append(night(day, parts, answers, "equal"))
        if day >= PANEL_PARTS:
            yield judge(nights[-looks_back:], rule)


def equal(kept: Kept, seasons: int) -> tuple[int, float]:
    """The number of seasons that raised an alarm, and the share of the slices' verdicts that decided nothing."""
    alarmed, undecided, verdicts = 0, Counter[str](), 0
    for repeat in range(seasons):
        fails = 0
        for verdict in season(kept, repeat, RULE):
            fails += verdict.decision is Decision.FAIL
            verdicts += 1
            undecided.update(one.slice for one in verdict.slices if one.decision is Decision.INCONCLUSIVE)
        alarmed += fails > 0
    print(
        f"\nequal, {seasons} seasons of {SEASON} nights: {alarmed} with an alarm; bound {SEASON * RULE.false_alarms:g}"
    )
    shares = ", ".join(f"{name} {count / verdicts:.2f}" for name, count in undecided.most_common())
    print(f"decided nothing, by slice: {shares or 'none'}")
    return alarmed, sum(undecided.values()) / (verdicts * len(kept.asking.slices))


def counted(kept: Kept, seasons: int) -> tuple[int, int]:
    """The number of alarms and of nights, with a rule that allows `COUNTED` times the alarms."""
    rule = msgspec.structs.replace(RULE, false_alarms=COUNTED * RULE.false_alarms)
    fails = sum(
        verdict.decision is Decision.FAIL for repeat in range(seasons) for verdict in season(kept, repeat, rule)
    )
    print(f"at {rule.false_alarms:g} a night: {fails} alarms in {seasons * SEASON} nights")
    return fails, seasons * SEASON


def greedy(kept: Kept) -> float:
    """The share of the slices' verdicts on equal, greedy nights that do not pass."""
    parts = panel(random.Random("greedy"), kept)
    nights = [night(day, parts, kept.sound, "sound") for day in range(2 * PANEL_PARTS)]
    undecided = [one for one in judge(nights, RULE).slices if one.decision is not Decision.PASS]
    reasons = "; ".join(f"{one.slice}: {one.reason}" for one in undecided)
    print(f"equal and greedy: {len(undecided)} of {len(parts)} slices do not pass. {reasons}")
    return len(undecided) / len(parts)


def main() -> None:
    """Parse, ask, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 repeats and 4 seasons")
    parser.add_argument("--repeats", type=int, help="of each defect; 20, or 2 with --quick")
    parser.add_argument("--seasons", type=int, help="of 50 equal nights; 100, or 4 with --quick")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the answers' scores between runs")
    add_check(parser)
    arguments = parser.parse_args()
    repeats: int = arguments.repeats or (2 if arguments.quick else 20)
    seasons: int = arguments.seasons or (4 if arguments.quick else 100)
    asking = Asking(tuple(sorted(BROKEN)), PANEL_PARTS * ITEMS, 4)
    kept = scores(asking, seeded(), arguments.keep, lambda line: print(line, flush=True))
    caught = broken(kept, repeats)
    alarmed, undecided = equal(kept, seasons)
    fails, nights = counted(kept, max(1, seasons // 5))
    greedy(kept)
    print(
        json.dumps(
            {
                "defects_by_night_3": round(caught, 4),
                "false_alarms_in_50_equal_nights": round(alarmed / seasons, 4),
                "inconclusive": round(undecided, 4),
            }
        )
    )
    missed = []
    if caught < GOAL:
        missed.append(f"{caught:.1%} of the defects reported by the third night, under {GOAL:.0%}")
    if alarmed > most(seasons, SEASON * RULE.false_alarms):
        missed.append(
            f"{alarmed} of {seasons} equal seasons raised an alarm, the bound is {SEASON * RULE.false_alarms:.0%}"
        )
    if fails > most(nights, COUNTED * RULE.false_alarms):
        missed.append(f"{fails} alarms in {nights} nights, the bound is {COUNTED * RULE.false_alarms:.1%}")
    tell(missed, arguments.check)


if __name__ == "__main__":
    main()
