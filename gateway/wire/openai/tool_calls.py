"""Which tool call a piece of an engine's answer belongs to, and how a choice ends: streamed and whole alike. Pure."""

from __future__ import annotations

from contracts.errors import EngineFailed
from gateway.wire.openai.schema import MAX_CALLS

NO_ARGUMENTS = "{}"
"""Of a call that has ended; several engines write nothing."""
_CUT = ("length", "content_filter")
"""Reasons that end a choice in the middle."""
_LENGTH = ("MAX_TOKENS", "max_length", "max_tokens", "model_length")
"""`length` in other APIs' words."""


class Call:
    """A call as far as its pieces have come. blank: its arguments are, so far."""

    __slots__ = ("blank", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.blank = True

    def ended_by(self, id_: str | None, name: str | None) -> bool:
        """Whether a piece under this call's index begins another call."""
        if id_ and self.id:
            return id_ != self.id
        return bool(name and self.name)


class Calls:
    """Of one choice, numbered in the order they began.

    Engines number calls with gaps, or give several the same index, or none: another id, or a second name, begins a
    call.
    """

    __slots__ = ("_by_index", "begun")

    def __init__(self) -> None:
        self._by_index: dict[int, int] = {}
        """The number of the call that a piece with this index belongs to."""
        self.begun: list[Call] = []

    def number(self, index: int | None, id_: str | None, name: str | None) -> int:
        """Of the call that such a piece would belong to."""
        number = self._by_index.get(index or 0)
        return len(self.begun) if number is None or self.begun[number].ended_by(id_, name) else number

    def add(self, index: int | None, id_: str | None, name: str | None, arguments: str | None) -> int:
        """Take a piece; returns its call's number. Raises EngineFailed for more calls than an answer may hold."""
        number = self.number(index, id_, name)
        if number == len(self.begun):
            if not 0 <= (index or 0) < MAX_CALLS or number == MAX_CALLS:  # the engine's word could fill the memory
                raise EngineFailed("The engine sent more tool calls than an answer may hold.")
            self._by_index[index or 0] = number
            self.begun.append(Call())
        call = self.begun[number]
        call.id = id_ or call.id
        call.name = name or call.name
        if call.blank and arguments:
            call.blank = not arguments.strip()
        return number

    def without_arguments(self, reason: str | None) -> list[int]:
        """The calls that have ended without arguments. reason: as of `told_reason`; None: the choice has not ended."""
        ended = self.begun
        if reason is None or reason in _CUT:  # the last one was not finished
            ended = ended[:-1] if reason else []
        return [number for number, call in enumerate(ended) if call.blank]


def told_reason(reason: str, *, calls: bool) -> str:
    """Why a choice has ended, in the words of OpenAI's API, which are all that typed clients take. calls: it has made
    some; a choice that ends well says by its reason whether it has."""
    if reason in _LENGTH:
        return "length"
    if reason in _CUT:
        return reason
    return "tool_calls" if calls else "stop"
