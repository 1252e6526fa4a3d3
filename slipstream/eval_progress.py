"""How far a run of evals or a comparison is, for who waits for it: its slices, their items, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.admin.resources.evals import RunInFull
    from gateway.evals.store import Comparison, SliceProgress

MOST_NAMED = 4
"""Slices in one line."""


def plan_of(found: RunInFull | Comparison, runs: Sequence[RunInFull]) -> str:
    """What will be asked, and when it ends. runs: the run itself, or the comparison's two."""
    from gateway.evals.store import Comparison

    slices = runs[0].slices
    names = _listed([each.slice for each in slices])
    what = f"{len(slices)} slices ({names})" if len(slices) != 1 else f"the slice {names}"
    if isinstance(found, Comparison):
        first, most = found.rule.first_look, found.budget_items
        return (
            f"both pools are asked the same items of {what}: of each at first {min(first, most):,}, then twice as many "
            f"and so on where it is undecided, up to the budget of {most:,}; a slice ends as soon as it is decided"
        )
    counts = {each.items for each in slices}
    each_of = f"{counts.pop():,} items" if len(counts) == 1 else "its items"
    total = sum(each.items for each in slices)
    every = f" of each of {what}, {total:,} in all" if len(slices) != 1 else f" of {what}"
    return f"{each_of}{every}; all are asked, it does not end early"


def progress_of(found: RunInFull | Comparison, runs: Sequence[RunInFull]) -> str:
    """One line."""
    from gateway.evals.store import Comparison

    is_comparison = isinstance(found, Comparison)
    status = found.status if isinstance(found, Comparison) else found.run.status
    answered, items = sum(each.run.answered for each in runs), sum(each.run.items for each in runs)
    total = (
        f"{status.value}: {answered:,} of {items:,} {'answers of both pools' if is_comparison else 'items answered'}"
    )
    return "; ".join((total, *_slices(runs)))


def _slices(runs: Sequence[RunInFull]) -> Iterator[str]:
    """Those under way with their numbers; of the others how many there are. Of one alone the total says it all."""
    every = list(zip(*(run.slices for run in runs), strict=True))
    if len(every) < 2:
        return
    sums = [(arms[0].slice, sum(each.answered for each in arms), _asked(arms)) for arms in every]
    begun = [f"{name} {answered:,} of {items:,}" for name, answered, items in sums if 0 < answered < items]
    done = sum(answered >= items for _, answered, items in sums)
    if begun:
        yield _listed(begun)
    if done:
        yield f"{done} of {len(sums)} slices {'done' if len(runs) == 1 else 'answered so far as asked'}"


def _asked(arms: Sequence[SliceProgress]) -> int:
    return sum(each.items for each in arms)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join((*names[:MOST_NAMED], *((f"{more} more",) if more > 0 else ())))
