"""Whether `slipstream diagnose` names what is wrong with a running deployment, and never what would not help.

    python -m benchmarks.diagnosis [--seeds 5] [--causes "slow router" healthy …] [--seconds 12] [--check]

Gateway, router, worker, PostgreSQL and Valkey run as processes of `slipstream up`, three engines on the wall clock
behind them that queue, prefill, decode, cache and retract (benchmarks/diagnosed/paced_engine.py), and a real nginx
before them. In every seed a healthy window is measured; then each cause is injected, in an order of the seed's own, for
one window, which is diagnosed beside the healthy one; the path to the client is audited meanwhile, as `diagnose --url`
does. Between two causes all is made well and traffic goes on for a while, unjudged.

`right`: the part of the windows whose first finding is the cause that was injected, or that have none and were healthy.
`wrong_fix`: windows in which a change was proposed that the documents call wrong for the injected cause.
`false_alarms`: healthy windows with a finding. Last line: JSON of the three. --check ends with an error under 95 % or
with any of the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from datetime import UTC, datetime

import msgspec
import uvloop

from benchmarks.bounds import add_check, tell
from benchmarks.diagnosed.causes import INJECTIONS
from benchmarks.diagnosed.load import Load, Shape
from benchmarks.diagnosed.site import Site, site
from benchmarks.needs import program
from control.diagnosis.diagnosis import DiagnosisOf, DiagnosisQuery

WARM_S, HEAL_S = 10.0, 2.5
GOAL = 0.95
NOTHING = "nothing"
Span = tuple[datetime, datetime]


class Judged(msgspec.Struct, frozen=True):
    """One window."""

    seed: int
    injected: str
    found: str
    """The first finding's cause, or the outcome without one."""
    right: bool
    wrong_fixes: tuple[str, ...]


async def window(here: Site, load: Load, shape: Shape, seconds: float) -> Span:
    """Traffic for `seconds`, until all of it is traced."""
    began = datetime.now(UTC)
    before = sum(load.statuses.values())
    await load.run(seconds, shape, here.url, here.keys)
    ended = datetime.now(UTC)
    await here.traced(began, sum(load.statuses.values()) - before)
    return began, ended


async def run(here: Site, seed: int, causes: list[str], seconds: float) -> list[Judged]:
    """Run all windows of a seed."""
    source = random.Random(seed)
    load = Load(here.session, source)
    await here.heal()
    await load.run(WARM_S, Shape(), here.url, here.keys)
    well = await window(here, load, Shape(), seconds)
    judged = []
    for name in source.sample(causes, len(causes)):
        judged.append(await inject(here, load, source, seed, name, well, seconds))
        await here.heal()
        await load.run(HEAL_S, Shape(), here.url, here.keys)
    return judged


async def inject(
    here: Site, load: Load, source: random.Random, seed: int, name: str, well: Span, seconds: float
) -> Judged:
    """Inject one cause and judge its diagnosis."""
    injection = INJECTIONS[name]
    statuses = dict(load.statuses)
    shape = await injection.inject(here, source)
    traffic, audit = await asyncio.gather(window(here, load, shape, seconds), here.audit())
    began, ended = traffic
    query = DiagnosisQuery(start=began, end=ended, before_start=well[0], before_end=well[1])
    found = await here.diagnose(query, audit)
    cause = found.outcome.value if found.primary is None else found.primary.cause.value
    right = cause == (injection.expected or "nothing_found")
    # everything that an operator is advised to do: the second findings' changes are printed like the first's
    findings = [each for each in (found.primary, *found.second) if each is not None]
    fixes = [(change.fix.value, each) for each in findings for change in each.fixes]
    wrong = [(fix, each) for fix, each in fixes if fix in injection.wrong]
    answered = {status: count - statuses.get(status, 0) for status, count in load.statuses.items()}
    print(
        f"seed {seed}  {name:18} {'ok   ' if right else 'WRONG'} {cause:18} {told(found, right)}  {answered}"
        + "".join(f"  WRONG FIX {fix} of {each.cause.value}: {each.evidence[0]}" for fix, each in wrong),
        flush=True,
    )
    return Judged(seed, name, cause, right, tuple(fix for fix, _ in wrong))


def told(found: DiagnosisOf, right: bool) -> str:
    """The evidence in a line; all of it for a wrong diagnosis."""
    if found.primary is None:
        return ""
    if right:
        return found.primary.evidence[0]
    second = "; ".join(f"{each.cause.value} {each.score} {each.evidence}" for each in [*found.second, *found.explained])
    return f"{found.primary.score} {found.primary.evidence}; then {second}"


def matrix(judged: list[Judged]) -> str:
    """The table of injected causes in rows and found causes in columns."""
    counted = Counter((each.injected, each.found) for each in judged)
    columns = sorted({each.found for each in judged})
    rows = [name for name in INJECTIONS if any(each.injected == name for each in judged)]
    wide = max(len(name) for name in rows)
    lines = [" " * wide + "  " + "  ".join(columns)]
    for name in rows:
        cells = [f"{counted[name, column] or '.'}".rjust(len(column)) for column in columns]
        lines.append(f"{name:{wide}}  " + "  ".join(cells))
    return "\n".join(lines)


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--causes", nargs="+", choices=INJECTIONS, default=list(INJECTIONS))
    parser.add_argument("--seconds", type=float, default=12.0, help="of each window")
    add_check(parser)
    arguments = parser.parse_args()
    program("nginx")
    judged: list[Judged] = []
    async with site() as here:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            judged += await run(here, seed, arguments.causes, arguments.seconds)
    print(matrix(judged))
    right = sum(each.right for each in judged) / len(judged)
    wrong_fix = sum(bool(each.wrong_fixes) for each in judged)
    false_alarms = sum(each.injected == "healthy" and not each.right for each in judged)
    print(json.dumps({"right": round(right, 3), "wrong_fix": wrong_fix, "false_alarms": false_alarms}))
    missed = [f"right {right:.1%}, under {GOAL:.0%}"] if right < GOAL else []
    missed += [f"{wrong_fix} wrong fixes"] if wrong_fix else []
    missed += [f"{false_alarms} false alarms"] if false_alarms else []
    tell(missed, arguments.check)


if __name__ == "__main__":
    uvloop.run(main())
