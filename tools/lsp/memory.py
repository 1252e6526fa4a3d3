"""Answers that were given, for the same place again and for what was typed since, as far as it is what they said."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from tools.lsp.gap import Gap


class Answer(msgspec.Struct, frozen=True):
    """completion_id: the gateway's, by which it is told that the user took it."""

    completion_id: str
    text: str


class Memory:
    """The `most` answers that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[Gap, Answer] = OrderedDict()

    def keep(self, gap: Gap, answer: Answer) -> None:
        """What was answered there; an empty one is an answer too."""
        self._answers[gap] = answer
        self._answers.move_to_end(gap)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)

    def find(self, gap: Gap) -> Answer | None:
        """What goes on here by the answer used last that fits: given at this place, or at one that was typed on from,
        in the answer's own words."""
        for asked, answer in reversed(self._answers.items()):
            if (asked.path, asked.suffix) != (gap.path, gap.suffix) or not gap.prefix.startswith(asked.prefix):
                continue
            typed = gap.prefix[len(asked.prefix) :]
            if not typed or (answer.text.startswith(typed) and answer.text != typed):
                self._answers.move_to_end(asked)
                return msgspec.structs.replace(answer, text=answer.text[len(typed) :])
        return None
