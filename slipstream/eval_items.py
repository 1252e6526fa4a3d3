"""Items of runs as `slipstream evals show --items` prints them: question, answers and scores, by slice."""

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
    """An item with each pool's answer. candidate_answer, candidate_score: null outside comparisons, and until the
    candidate has answered. question: the last message, or the text around the cursor, in the slice's present version;
    null if the slice or the item no longer exists."""

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
        """Whether an answer is not completely right."""
        return self.score < 1 or (self.candidate_score is not None and self.candidate_score < 1)

    @property
    def is_changed(self) -> bool:
        """Whether the two answers have different scores."""
        return self.candidate_score is not None and self.candidate_score != self.score


async def items_of(call: AdminCall, run_id: UUID, slice: str | None) -> dict[tuple[str, int], EvalItem]:
    """All items that a run has answered, by slice and seed. slice: only items of this slice."""
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
    """The items, ordered by slice and seed. candidate: empty for a run outside a comparison."""
    for key, item in sorted(answered.items()):
        other = candidate.get(key)
        source = find(item.slice)
        exists = source is not None and (source.size is None or item.seed < source.size)
        yield Asked(
            slice=item.slice,
            seed=item.seed,
            cluster=item.cluster,
            question=source.item(item.seed).shown if source is not None and exists else None,
            answer=_answer(item),
            score=item.score,
            candidate_answer=None if other is None else _answer(other),
            candidate_score=None if other is None else other.score,
        )


def lines_of(found: Iterable[Asked]) -> Iterator[str]:
    """The items as lines for a terminal, without control characters."""
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
