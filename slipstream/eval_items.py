"""Items of runs as `slipstream evals show --items` prints them: question, answers and scores, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from contracts.printable import printable

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.evals.evals import EvalItem
    from evals.slices.item import Source

PAGE = 100


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An item with what each pool answered. candidate_answer, candidate_score: null outside comparisons, and where it
    has not answered yet. question: its last message, or the text around its cursor, as the slice asks it now; null
    where slice or item are gone."""

    slice: str
    seed: int
    cluster: str
    question: str | None
    answer: str
    score: float
    candidate_answer: str | None = None
    candidate_score: float | None = None

    @property
    def is_wrong(self) -> bool:
        """Some answer is not wholly right."""
        return self.score < 1 or (self.candidate_score is not None and self.candidate_score < 1)

    @property
    def is_changed(self) -> bool:
        """The two answers are not equally right."""
        return self.candidate_score is not None and self.candidate_score != self.score


async def items_of(call: AdminCall, run_id: UUID, slice: str | None) -> dict[tuple[str, int], EvalItem]:
    """All items that a run has answered, by slice and seed. slice: of this one only."""
    from control.evals.evals import ItemQuery, list_eval_items

    found: dict[tuple[str, int], EvalItem] = {}
    cursor = None
    while True:
        page = await list_eval_items(call, run_id, ItemQuery(slice=slice, limit=PAGE, cursor=cursor))
        found |= {(each.slice, each.seed): each for each in page.data}
        cursor = page.next_cursor
        if cursor is None:
            return found


def asked(
    answered: dict[tuple[str, int], EvalItem],
    candidate: dict[tuple[str, int], EvalItem],
    find: Callable[[str], Source | None],
) -> Iterator[Asked]:
    """By slice and seed. candidate: empty for a run that stands alone."""
    for place, item in sorted(answered.items()):
        other = candidate.get(place)
        source = find(item.slice)
        is_there = source is not None and (source.size is None or item.seed < source.size)
        yield Asked(
            slice=item.slice,
            seed=item.seed,
            cluster=item.cluster,
            question=source.item(item.seed).shown if source is not None and is_there else None,
            answer=_answer(item),
            score=item.score,
            candidate_answer=None if other is None else _answer(other),
            candidate_score=None if other is None else other.score,
        )


def lines_of(found: Iterable[Asked]) -> Iterator[str]:
    """For a terminal, whose cursor nothing in it moves."""
    for each in found:
        yield f"{printable(each.slice)}, seed {each.seed}"
        yield from _text("question", "-" if each.question is None else each.question)
        yield from _text(f"{each.score:.2f}", each.answer)
        if each.candidate_answer is not None:
            yield from _text(f"{each.candidate_score:.2f} new", each.candidate_answer)
        yield ""


def _answer(item: EvalItem) -> str:
    return item.answer if item.error_code is None else f"refused: {item.error_code}"


def _text(label: str, text: str) -> Iterator[str]:
    for at, line in enumerate(text.splitlines() or [""]):
        yield f"  {label if at == 0 else '':<9} {printable(line)}".rstrip()
