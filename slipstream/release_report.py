"""A release as `slipstream releases` prints it: shares in percent, stages counted from 1, times in UTC."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from contracts.printable import printable
from slipstream.table import table

if TYPE_CHECKING:
    from gateway.admin.resources.releases import ReleaseDetail, ReleaseSummary

HEAD = ("id", "model", "candidate", "baseline", "state", "share", "since or ended (UTC)", "why it is there")
EVIDENCE = ("test", "metric", "what is counted", "candidate", "control", "evidence", "needed", "")
LEGEND = (
    "candidate, control: sessions that count against each. evidence, needed: powers of ten; at 0 or less nothing "
    "speaks for it. One harm that reaches what is needed rolls the release back; before 100 % of the sessions every "
    "proof must reach it."
)
LABEL_COLUMNS = 11
MOST_COLUMNS = 120


def percent(share: float) -> str:
    """A share of sessions; 0.125 is 12.5 %."""
    return f"{100 * share:.4g} %"


def stage_name(stages: list[float], stage: int) -> str:
    """`stage 2 of 5 (1 %)`."""
    name = "shadow" if stages[stage] == 0 else percent(stages[stage])
    return f"stage {stage + 1} of {len(stages)} ({name})"


def lines_of(found: ReleaseDetail, now: datetime) -> Iterator[str]:
    """All that is known of one. now: with a time zone."""
    yield f"release    {found.id}"
    yield f"model      {found.model}: {found.baseline_pool} -> {found.candidate_pool}"
    yield f"stages     {', '.join('shadow' if share == 0 else percent(share) for share in found.stages)}"
    if found.slices:
        rule = found.slice_rule
        own = "".join(f", {name} {100 * margin:g}" for name, margin in rule.margins.items())
        asked = f"by at most {100 * rule.margin:g} points lower{own}, of at most {rule.budget_items:,} items each"
        yield from _wrapped("slices", f"{', '.join(found.slices)}: {asked}")
    yield f"state      {_state(found)}"
    for move in found.moves:
        yield from _wrapped("history", f"{_utc(move.at)}  {move.event.value} by {move.actor}: {move.reason}")
    if found.waits_for:
        yield from _wrapped("now", found.waits_for)
    for each in found.consumed:
        if each.requests:
            at = stage_name(found.stages, each.stage)
            yield f"evidence   {at}: {each.requests:,} requests in {each.steps:,} steps"
    yield from _thresholds(found)
    if found.verdict is not None:
        yield from _judged(found, found.verdict, now)
    yield from _next(found)


def row_of(each: ReleaseSummary) -> tuple[str, ...]:
    """In a list, by HEAD."""
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
    for field, name in (("ttft_ms", "first token"), ("itl_ms", "longest gap")):
        values = (found.thresholds or {}).get(field, ())
        if values:
            placed = ", ".join(f"p{100 * q:g} {ms:,.1f}" for q, ms in zip(quantiles, values, strict=False))
            yield from _wrapped("threshold", f"{name}, ms, of the baseline: {placed}")


def _judged(found: ReleaseDetail, verdict: dict[str, Any], now: datetime) -> Iterator[str]:
    import msgspec

    from evals.judge import Policy, Verdict
    from rollout.outlook import needed_log10, outlook

    judged, policy = msgspec.convert(verdict, Verdict), msgspec.convert(found.policy or {}, Policy)
    rows = [
        (
            kind,
            one.metric,
            one.test,
            f"{one.candidate:,}",
            f"{one.control:,}",
            f"{one.log10_e:.1f}",
            f"{needed_log10(one):.1f}",
            "reached" if one.is_enough else "",
        )
        for kind, every in (("harm", judged.harms), ("proof", judged.proofs))
        for one in every
    ]
    if rows:
        yield ""
        yield from table(EVIDENCE, rows)
        yield from textwrap.wrap(LEGEND, _columns())
        yield ""
    if not found.state.ended and judged.stage + (found.stages[0] == 0) == found.stage:
        for line in outlook(judged, policy, (now - found.stage_began_at).total_seconds()):
            yield from _wrapped("missing", line)


def _next(found: ReleaseDetail) -> Iterator[str]:
    if found.state.value == "promoted":
        text = f"{found.baseline_pool} serves {found.model} no more; remove the pool if nothing else uses it"
        yield from _wrapped("next", text)
    elif found.state.value == "held":
        yield from _wrapped("next", f"slipstream releases resume, promote or rollback {found.model} --reason WHY")


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%F %T} UTC"


def _columns() -> int:
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def _wrapped(label: str, text: str) -> Iterator[str]:
    """Behind its label, as wide as the terminal; names and reasons are others'."""
    lines = textwrap.wrap(printable(text), max(_columns() - LABEL_COLUMNS, 40), break_long_words=False) or [""]
    for at, line in enumerate(lines):
        yield f"{label if at == 0 else '':<{LABEL_COLUMNS}}{line}"
