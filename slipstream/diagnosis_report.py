"""Formats a diagnosis as text. The first step comes first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from control.diagnosis.findings.evidence import LATE
from control.diagnosis.findings.tree import Outcome
from slipstream.table import table, wrapped

if TYPE_CHECKING:
    from control.diagnosis.diagnosis import BurningObjective, DiagnosisOf, FoundCause, TwoNumbers

NUMBERS = ("class", "requests", "TTFT p50", "p95", "p99", "limit", "TPOT p50", "p95", "p99", "limit")
OUTCOMES = {
    Outcome.NOTHING_FOUND: "No cause found above its threshold.",
    Outcome.BURNING: "No cause found above its threshold; the alert is of the requests listed here.",
    Outcome.NOT_ENOUGH_EVIDENCE: "There is not enough evidence to name a cause.",
}


def text_of(found: DiagnosisOf) -> str:
    """The diagnosis as several lines."""
    return "\n".join(_lines(found))


def _lines(found: DiagnosisOf) -> Iterator[str]:
    for burning in found.burning:
        yield from _burning(burning)
        yield ""
    if found.primary is None:
        yield OUTCOMES[found.outcome]
    else:
        yield from _cause("FOUND", found.primary)
    for each in found.second:
        yield ""
        yield from _cause("THEN", each)
    if found.explained:
        yield ""
        yield from wrapped("explained by the first: ", ", ".join(each.cause.value for each in found.explained))
    yield ""
    yield from wrapped(
        "",
        f"{found.requests:,} requests from {found.start:%Y-%m-%d %H:%M:%S} to {found.end:%H:%M:%S} UTC, compared with "
        f"{found.requests_before:,} from {found.before_start:%Y-%m-%d %H:%M:%S} to {found.before_end:%H:%M:%S}",
    )
    if found.sampled_share is not None:
        yield from wrapped(
            "",
            f"Times are those of a sample, {found.sampled_share:.1%} of the answered requests drawn at random; counts "
            "are of all requests.",
        )
    if found.numbers:
        yield ""
        yield from table(NUMBERS, [_numbers(each) for each in found.numbers])
    if found.questions and found.outcome is not Outcome.NOT_ENOUGH_EVIDENCE:
        yield ""
        yield "Not measured, and would add evidence:"
        for question in found.questions:
            yield from wrapped("  - ", question)
    yield ""
    yield from _clear(found)
    if found.not_judged:
        yield from wrapped("too few to be judged: ", "; ".join(found.not_judged))
    yield from _not_known(found)


def _clear(found: DiagnosisOf) -> Iterator[str]:
    """Causes below their thresholds; with the thresholds if no cause was found."""
    if found.primary is not None or found.outcome is Outcome.NOT_ENOUGH_EVIDENCE:
        if found.clear:
            yield from wrapped("below their thresholds: ", ", ".join(each.cause.value for each in found.clear))
        return
    causes: dict[str, list[str]] = {}
    for each in found.clear:
        causes.setdefault(each.threshold, []).append(each.cause.value)
    for threshold, names in causes.items():
        yield from wrapped("below its threshold: ", f"{', '.join(names)} ({threshold})")


def _burning(each: BurningObjective) -> Iterator[str]:
    yield from wrapped("ALERT  ", each.told)
    for part in each.burnt:
        where = f"{part.model} on {part.pool}" if part.pool else part.model or "no model"
        yield from wrapped("       ", f"{part.requests:,}  {missed(part.what)}, {where}, {part.organization}")
    listed = sum(part.requests for part in each.burnt)
    if listed < each.looked_at:
        yield f"       {each.looked_at - listed:,}  others"
    if each.looked_at < each.bad:
        yield f"       (the newest {each.looked_at:,} of the {each.bad:,} bad requests)"


def missed(what: str) -> str:
    """The objective that a bad request missed, as text for people."""
    return LATE.get(what, what)


def _not_known(found: DiagnosisOf) -> Iterator[str]:
    """One line for each reason: in a new deployment, nearly all causes share one, and their number is enough."""
    causes: dict[str, list[str]] = {}
    for unknown in found.unknown:
        causes.setdefault(unknown.why, []).append(unknown.cause.value)
    for why, names in causes.items():
        count = f"{len(names)} cause{'' if len(names) == 1 else 's'}"
        which = count if found.outcome is Outcome.NOT_ENOUGH_EVIDENCE else ", ".join(names)
        yield from wrapped("not enough evidence: ", f"{why} ({which})")


def _cause(head: str, each: FoundCause) -> Iterator[str]:
    since = "" if each.new else " (as far as is known, it always was)"
    yield f"{head}  phase {each.phase.value}: {each.cause.value}{since}"
    for sentence in each.evidence:
        yield from wrapped("       ", sentence)
    for number, change in enumerate(each.fixes, 1):
        yield from wrapped(f"  fix {number}  {change.fix.value}: ", change.told)
    for useless in each.would_not_help:
        yield from wrapped(f"  would not help: {useless.fix.value}: ", useless.why)


def _numbers(each: TwoNumbers) -> tuple[str, ...]:
    label = ", ".join(part.value for part in (each.tier, each.length) if part is not None)
    ttft = (each.ttft_p50_ms, each.ttft_p95_ms, each.ttft_p99_ms, each.ttft_objective_ms)
    tpot = (each.tpot_p50_ms, each.tpot_p95_ms, each.tpot_p99_ms, each.tpot_objective_ms)
    return label, f"{each.requests:,}", *("-" if value is None else f"{value:,.0f} ms" for value in (*ttft, *tpot))
