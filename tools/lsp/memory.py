"""Remembers answers for the same gap, and for gaps after the user typed a part of the answer."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from tools.lsp.gap import Gap


class Answer(msgspec.Struct, frozen=True):
    """completion_id: the gateway's, to report that the user accepted the answer."""

    completion_id: str
    text: str


class Memory:
    """The `most` most recently used answers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[Gap, Answer] = OrderedDict()

    def keep(self, gap: Gap, answer: Answer) -> None:
        """Remember the answer of a gap, even an empty one."""
        self._answers[gap] = answer
        self._answers.move_to_end(gap)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)

    def find(self, gap: Gap) -> Answer | None:
        """What remains of the most recently used answer that fits: the answer of this gap, or of an earlier one after
        which the user typed the answer's beginning."""
        for earlier, answer in reversed(self._answers.items()):
            if (earlier.path, earlier.suffix) != (gap.path, gap.suffix) or not gap.prefix.startswith(earlier.prefix):
                continue
            typed = gap.prefix[len(earlier.prefix) :]
            if not typed or (answer.text.startswith(typed) and answer.text != typed):
                self._answers.move_to_end(earlier)
                return msgspec.structs.replace(answer, text=answer.text[len(typed) :])
        return None
