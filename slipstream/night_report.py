"""The report of `slipstream evals nights` on the nightly evals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from slipstream.hints import command
from slipstream.table import table

if TYPE_CHECKING:
    from control.eval_runs.nights import EvalNight, NightSlice, NightStatus

HEAD = ("night", "model", "pool", "verdict", "pass", "fail", "undecided", "why")
SLICES = ("slice", "verdict", "right", "difference", "items", "why")


def status_lines(found: NightStatus) -> Iterator[str]:
    """Lines on the last and the next night, and on missing evidence."""
    for one in found.last:
        state = one.status.value if one.decision is None else one.decision.value
        detail = f", {one.answered:,} of {one.items:,} items answered" if one.decision is None else f", {one.reason}"
        yield f"last night: {one.model}: {one.night}: {state}{detail}"
    if not found.last:
        yield "last night: none yet"
    plan = found.plan
    if plan is not None and plan.next_at is not None:
        items = sum(len(slices) for slices in plan.slices.values()) * plan.items
        models = ", ".join(f"{model} ({len(slices)} slices)" for model, slices in plan.slices.items()) or "no model"
        yield f"next:       {plan.next_at:%Y-%m-%d %H:%M} UTC: {models}, {items:,} items"
    else:
        yield "next:       none"
    yield f"missing:    {found.missing[0] if found.missing else 'nothing'}"
    yield from (f"            {one}" for one in found.missing[1:])


def night_lines(found: Sequence[EvalNight], every_slice: bool) -> Iterator[str]:
    """A table of nights, newest first, and the failed slices of each model's newest night, or all its slices."""
    if not found:
        return
    yield from table(HEAD, map(_row, found))
    newest = {one.model: one for one in reversed(found)}
    for one in newest.values():
        slices = [each for each in one.slices if every_slice or each.decision.value == "fail"]
        if slices:
            yield ""
            yield f"{one.model} on {one.pool}, the night of {one.night}, run {one.run_id}:"
            yield from table(SLICES, map(_slice_row, slices))
        if one.changed:
            yield f"changed since the previous version: {'; '.join(one.changed)}"
        if one.rollback_release_id is not None:
            to_undo = command(f'releases rollback {one.rollback_release_id} --reason "the night of {one.night}"')
            yield f"release {one.rollback_release_id} was promoted before it; this restores the previous version:"
            yield f"  {to_undo}"


def _row(one: EvalNight) -> tuple[str, ...]:
    counts = [sum(each.decision.value == name for each in one.slices) for name in ("pass", "fail", "inconclusive")]
    return f"{one.night}", one.model, one.pool, one.decision.value, *map(str, counts), one.reason


def _slice_row(one: NightSlice) -> tuple[str, ...]:
    right = "-" if one.score is None else f"{one.score:.3f}"
    difference = f"{one.difference:+.3f}" if one.items else "-"
    return one.slice, one.decision.value, right, difference, f"{one.items:,}", one.reason
