"""The progress of an eval run or a comparison, for a user who waits: its slices, their items, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from control.evals.evals import RunInFull
    from control.evals.store import Comparison, SliceProgress
    from storage.tables.evals import Status

MAX_NAMED = 4
"""Maximum number of slices in one line."""
SILENT_S = 30.0
"""Seconds without progress after which a line reports that."""


def plan_of(found: RunInFull | Comparison, runs: Sequence[RunInFull]) -> str:
    """A sentence on the items to answer and on when it ends. runs: the run itself, or the comparison's two."""
    from control.evals.store import Comparison

    slices = runs[0].slices
    names = _listed([each.slice for each in slices])
    text = f"{len(slices)} slices ({names})" if len(slices) != 1 else f"the slice {names}"
    if isinstance(found, Comparison):
        first, most = found.rule.first_look, found.budget_items
        return (
            f"both pools are asked the same items of {text}: {min(first, most):,} of each at first, then twice as many "
            f"each time while a slice is undecided, up to the budget of {most:,}; a slice ends as soon as it is decided"
        )
    counts = {each.items for each in slices}
    each_of = f"{counts.pop():,} items" if len(counts) == 1 else "its items"
    total = sum(each.items for each in slices)
    every = f" of each of {text}, {total:,} in all" if len(slices) != 1 else f" of {text}"
    return f"{each_of}{every}; all are asked; a run does not end early"


def progress_of(found: RunInFull | Comparison, runs: Sequence[RunInFull]) -> str:
    """The progress as one line."""
    from control.evals.store import Comparison

    is_comparison = isinstance(found, Comparison)
    status = _status_of(found)
    answered, items = sum(each.run.answered for each in runs), sum(each.run.items for each in runs)
    total = (
        f"{status.value}: {answered:,} of {items:,} {'answers of both pools' if is_comparison else 'items answered'}"
    )
    return "; ".join((total, *_slices(runs)))


class Telling:
    """Decides which lines of progress to print for a user who waits.

    worker_log, status: commands that show the worker's log, and whether a worker runs.
    """

    def __init__(self, worker_log: str, status: str) -> None:
        self._worker_log = worker_log
        self._status = status
        self._last = ""
        self._since_s = 0.0
        self._is_silent = False

    def next(self, found: RunInFull | Comparison, runs: Sequence[RunInFull], now_s: float) -> str | None:
        """The next line at this moment; None if nothing changed. One line reports each period without progress."""
        line = progress_of(found, runs)
        if line != self._last:
            self._last, self._since_s, self._is_silent = line, now_s, False
            return line
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
    """The slices under way with their counts, then the number of completed ones; nothing for a single slice."""
    every = list(zip(*(run.slices for run in runs), strict=True))
    if len(every) < 2:
        return
    sums = [(arms[0].slice, sum(each.answered for each in arms), _asked(arms)) for arms in every]
    running = [f"{name} {answered:,} of {items:,}" for name, answered, items in sums if 0 < answered < items]
    done = sum(answered >= items for _, answered, items in sums)
    if running:
        yield _listed(running)
    if done:
        yield f"{done} of {len(sums)} slices {'done' if len(runs) == 1 else 'answered so far as asked'}"


def _asked(arms: Sequence[SliceProgress]) -> int:
    return sum(each.items for each in arms)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join((*names[:MAX_NAMED], *((f"{more} more",) if more > 0 else ())))
