"""How far a run of evals or a comparison is, for who waits for it: its slices, their items, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from control.evals.evals import RunInFull
    from control.evals.store import Comparison, SliceProgress
    from storage.tables.evals import Status

MAX_NAMED = 4
"""Slices in one line."""
SILENT_S = 30.0
"""Without news it is said that there is none."""


def plan_of(found: RunInFull | Comparison, runs: Sequence[RunInFull]) -> str:
    """What will be asked, and when it ends. runs: the run itself, or the comparison's two."""
    from control.evals.store import Comparison

    slices = runs[0].slices
    names = _listed([each.slice for each in slices])
    what = f"{len(slices)} slices ({names})" if len(slices) != 1 else f"the slice {names}"
    if isinstance(found, Comparison):
        first, most = found.rule.first_look, found.budget_items
        return (
            f"both pools are asked the same items of {what}: {min(first, most):,} of each at first, then twice as many "
            f"each time while a slice is undecided, up to the budget of {most:,}; a slice ends as soon as it is decided"
        )
    counts = {each.items for each in slices}
    each_of = f"{counts.pop():,} items" if len(counts) == 1 else "its items"
    total = sum(each.items for each in slices)
    every = f" of each of {what}, {total:,} in all" if len(slices) != 1 else f" of {what}"
    return f"{each_of}{every}; all are asked; a run does not end early"


def progress_of(found: RunInFull | Comparison, runs: Sequence[RunInFull]) -> str:
    """One line."""
    from control.evals.store import Comparison

    is_comparison = isinstance(found, Comparison)
    status = _status_of(found)
    answered, items = sum(each.run.answered for each in runs), sum(each.run.items for each in runs)
    total = (
        f"{status.value}: {answered:,} of {items:,} {'answers of both pools' if is_comparison else 'items answered'}"
    )
    return "; ".join((total, *_slices(runs)))


class Telling:
    """What is said to who waits, line by line.

    worker_log, status: commands that show what the worker says, and whether there is one.
    """

    def __init__(self, worker_log: str, status: str) -> None:
        self._worker_log = worker_log
        self._status = status
        self._said = ""
        self._since_s = 0.0
        self._is_silent = False

    def next(self, found: RunInFull | Comparison, runs: Sequence[RunInFull], now_s: float) -> str | None:
        """The next line at this moment; None: nothing is new. Once of each stretch without news, that there is none."""
        told = progress_of(found, runs)
        if told != self._said:
            self._said, self._since_s, self._is_silent = told, now_s, False
            return told
        if self._is_silent or now_s - self._since_s < SILENT_S:
            return None
        self._is_silent = True
        return self._silence(_status_of(found), now_s - self._since_s)

    def _silence(self, status: Status, for_s: float) -> str:
        if status == "queued":
            return (
                f"no worker has started it for {for_s:,.0f} s: a busy worker takes it next, and "
                f"`{self._status}` shows whether the queue evals has a worker"
            )
        return f"no item was answered for {for_s:,.0f} s; if the gateway refuses, `{self._worker_log}` shows the reason"


def _status_of(found: RunInFull | Comparison) -> Status:
    from control.evals.store import Comparison

    return found.status if isinstance(found, Comparison) else found.run.status


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
    more = len(names) - MAX_NAMED
    return ", ".join((*names[:MAX_NAMED], *((f"{more} more",) if more > 0 else ())))
