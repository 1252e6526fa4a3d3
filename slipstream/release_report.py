"""The report of `slipstream releases` on a release: shares in percent, stages counted from 1, times in UTC."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from contracts.printable import printable
from slipstream.table import table

if TYPE_CHECKING:
    from control.releases.judge.evidence import Evidence
    from control.releases.releases import ReleaseDetail, ReleaseSummary

HEAD = ("id", "model", "candidate", "baseline", "state", "share", "since or ended (UTC)", "reason")
EVIDENCE = ("test of", "what", "counted", "candidate", "control", "evidence", "decides at", "so far")
LEGEND = (
    "harm: that the candidate is worse than tolerated; one that reaches 100 % rolls the release back, in any stage. "
    "proof: that it is not worse by the margin; all must reach 100 % before it is given all traffic, and none is "
    "needed for the stages before. candidate, control: the sessions that count against each, where the candidate's "
    "latencies are divided by 1 + the tolerance first (of first requests every session counts, and how slow they were "
    "is compared). evidence: it decides at the power of ten next to it; at 10^0 and below there is none."
)
COPIES = re.compile(r"(\d+) more copies of requests")
"""The reason for which the controller waits in the shadow stage."""
LABEL_COLUMNS = 11
MAX_COLUMNS = 120


def percent(share: float) -> str:
    """A share of sessions in percent; 0.125 is 12.5 %."""
    return f"{100 * share:.4g} %"


def stage_name(stages: list[float], stage: int) -> str:
    """The name of a stage, such as `stage 2 of 5 (1 %)`."""
    name = "shadow" if stages[stage] == 0 else percent(stages[stage])
    return f"stage {stage + 1} of {len(stages)} ({name})"


def lines_of(found: ReleaseDetail, now: datetime) -> Iterator[str]:
    """The full report on a release. now: with a time zone."""
    yield f"release    {found.id}"
    pools = f"from the pool {found.baseline_pool} (baseline) to {found.candidate_pool} (candidate)"
    yield f"model      {found.model}: {pools}"
    stages = ", ".join("shadow" if share == 0 else percent(share) for share in found.stages)
    yield f"stages     {stages} of the sessions"
    if found.slices:
        rule = found.slice_rule
        own = ", ".join(f"{name} {100 * margin:g}" for name, margin in rule.margins.items())
        allowance = (
            f"the candidate's share of right answers may be {100 * rule.margin:g} points lower"
            f"{f' ({own})' if own else ''}; at most {rule.budget_items:,} items of each are asked"
        )
        yield from _wrapped("slices", f"{', '.join(found.slices)}: {allowance}")
    for warning in found.warnings:
        yield from _wrapped("warning", warning)
    yield f"state      {_state(found)}"
    for move in found.moves:
        yield from _wrapped("history", f"{_utc(move.at)}  {move.event.value} by {move.actor}: {move.reason}")
    judged = _Judged(found, now) if found.verdict is not None and found.policy is not None else None
    missing = list(judged.missing()) if judged is not None else []
    if found.waits_for and not (missing and judged is not None and found.waits_for == judged.verdict.reason):
        yield from _wrapped("now", found.waits_for)
    for each in found.consumed:
        if each.requests:
            at = stage_name(found.stages, each.stage)
            yield f"evidence   {at}: {each.requests:,} requests of both arms, in {each.steps:,} looks"
    yield from _thresholds(found)
    if judged is not None:
        yield from judged.tests()
        yield from judged.nearest()
    for line in missing:
        yield from _wrapped("missing", line)
    yield from _next(found)


def row_of(each: ReleaseSummary) -> tuple[str, ...]:
    """The row of a release in a list, by HEAD."""
    at = each.ended_at or each.stage_began_at
    return (
        str(each.id),
        each.model,
        each.candidate_pool,
        each.baseline_pool,
        each.state.value,
        percent(each.share),
        f"{at.astimezone(UTC):%Y-%m-%d %H:%M}",
        each.waits_for or each.reason,
    )


def _state(found: ReleaseDetail) -> str:
    at = stage_name(found.stages, found.stage)
    if found.ended_at is not None:
        served = f"{percent(found.share)} of the sessions go to the candidate"
        return f"{found.state.value} at {at}, ended {_utc(found.ended_at)}; {served}"
    return f"{found.state.value}, {at}, since {_utc(found.stage_began_at)}"


def _thresholds(found: ReleaseDetail) -> Iterator[str]:
    quantiles = (found.policy or {}).get("quantiles", ())
    for field, name in (("ttft_ms", "time to first token"), ("itl_ms", "longest gap between tokens")):
        values = (found.thresholds or {}).get(field, ())
        if values:
            placed = ", ".join(f"p{100 * q:g} {ms:,.1f}" for q, ms in zip(quantiles, values, strict=False))
            yield from _wrapped("threshold", f"{name} of the baseline, ms: {placed}")


class _Judged:
    """The judge's last verdict on a release."""

    def __init__(self, found: ReleaseDetail, now: datetime) -> None:
        import msgspec

        from control.releases.judge import Policy, Verdict

        self._found = found
        self.verdict = msgspec.convert(found.verdict, Verdict)
        self._policy = msgspec.convert(found.policy, Policy)
        self._elapsed_s = (now - found.stage_began_at).total_seconds()

    def tests(self) -> Iterator[str]:
        """A table with a line for each test, and the meanings of its columns."""
        from control.releases.judge.evidence import METRIC_NAMES
        from control.releases.rollout.outlook import needed_log10, towards

        rows = [
            (
                kind,
                METRIC_NAMES[one.metric],
                self._counted(one),
                f"{one.candidate:,}",
                f"{one.control:,}",
                f"10^{round(one.log10_e, 1) + 0.0:.1f}",
                f"10^{needed_log10(one):.1f}" if one.alpha else "never",
                "reached" if one.is_enough else f"{100 * towards(one):.0f} %",
            )
            for kind, every in (("harm", self.verdict.harms), ("proof", self.verdict.proofs))
            for one in every
        ]
        if rows:
            yield ""
            yield from table(EVIDENCE, rows)
            yield from textwrap.wrap(LEGEND, _columns())
            yield ""

    def nearest(self) -> Iterator[str]:
        """The test that is nearest to a rollback, or that caused it."""
        from control.releases.judge.evidence import METRIC_NAMES
        from control.releases.rollout.outlook import towards

        if not self.verdict.harms:
            return
        one = max(self.verdict.harms, key=towards)
        name = f"{METRIC_NAMES[one.metric]}, {self._counted(one)}"
        if one.is_enough:
            text = f"{name}: it has reached the evidence for a rollback"
        elif towards(one) > 0:
            text = f"{name}: at {100 * towards(one):.0f} % of the evidence for a rollback"
        else:
            text = "no test of harm has evidence against the candidate"
        yield from _wrapped("nearest", text)

    def missing(self) -> Iterator[str]:
        """The evidence that the stage still needs, with the time for it; nothing for a release that has ended."""
        from control.releases.rollout.outlook import copies_outlook, outlook

        found = self._found
        if found.state.ended:
            return
        copies = COPIES.search(found.waits_for) if found.stages[found.stage] == 0 else None
        if copies is not None:
            yield copies_outlook(int(copies[1]), found.shadow_least, self._elapsed_s)
        if self.verdict.stage + (found.stages[0] == 0) == found.stage:
            yield from outlook(self.verdict, self._policy, self._elapsed_s)

    def _counted(self, one: Evidence) -> str:
        """The name of a test, with the baseline's quantile in milliseconds."""
        thresholds: dict[str, Any] = self._found.thresholds or {}
        for quantile, ms in zip(self._policy.quantiles, thresholds.get(f"{one.metric}_ms", ()), strict=False):
            if one.test == f"sessions beyond p{100 * quantile:g}":
                return f"{one.test} ({ms:,.1f} ms)"
        return one.test


def _next(found: ReleaseDetail) -> Iterator[str]:
    if found.state.value == "promoted":
        text = f"{found.baseline_pool} no longer serves {found.model}; remove the pool if nothing else uses it"
        yield from _wrapped("next", text)
    elif found.state.value == "held":
        yield from _wrapped("next", f"slipstream releases resume, promote or rollback {found.model} --reason WHY")
    elif found.state.value == "waiting":
        text = f"{_place(found, found.stage)}, when {found.baseline_pool} has answered enough requests for a comparison"
        yield from _wrapped("next", f"{text}; until then the candidate gets no sessions")
    elif found.state.value == "running":
        yield from _wrapped("next", f"{_place(found, found.stage + 1)}, when {_condition(found)}")


def _place(found: ReleaseDetail, stage: int) -> str:
    """The name of a stage; for the last one, also that the candidate then serves the model."""
    name = stage_name(found.stages, stage)
    return f"{name}: {found.candidate_pool} serves {found.model}" if found.stages[stage] == 1 else name


def _condition(found: ReleaseDetail) -> str:
    """The conditions for the next stage."""
    policy, shadow = found.policy or {}, found.stages[0] == 0
    needs = []
    if found.stages[found.stage] == 0:
        if found.shadow_least:
            needs.append(f"both sides have answered {found.shadow_least:,} copies of requests")
        if found.slices:
            needs.append(f"the slices {', '.join(found.slices)} have passed")
    else:
        least = policy.get("least_units", [])[found.stage - shadow :][:1]  # none before the judge has a policy
        needs += [f"each arm has had {count:,} sessions in this stage" for count in least]
        if found.stage == len(found.stages) - 2:
            needs.append("every test of proof is reached")
            if policy.get("needs_slices"):
                needs.append(f"the slices {', '.join(found.slices)} have passed")
            if votes := policy.get("least_votes"):
                needs.append(f"reviewers have cast {votes:,} decisive votes")
    needs.append("no test of harm is reached")
    return f"{', '.join(needs[:-1])} and {needs[-1]}" if len(needs) > 1 else needs[0]


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%F %T} UTC"


def _columns() -> int:
    return min(shutil.get_terminal_size().columns, MAX_COLUMNS)


def _wrapped(label: str, text: str) -> Iterator[str]:
    """The text after its label, wrapped to the terminal. Control characters are replaced: names come from users."""
    lines = textwrap.wrap(printable(text), max(_columns() - LABEL_COLUMNS, 40), break_long_words=False) or [""]
    for at, line in enumerate(lines):
        yield f"{label if at == 0 else '':<{LABEL_COLUMNS}}{line}"
