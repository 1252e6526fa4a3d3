"""Who is next among those who wait: the lines take turns, and in each line its members do. Decides only.

A line is what shares with the others, such as an organization; a member of it is what shares with the rest of its line,
such as a network among all networks of strangers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

ItemT = TypeVar("ItemT")


class Place(NamedTuple):
    """Where somebody waits."""

    line: str
    member: str = ""


class Turns(Generic[ItemT]):
    """Those who wait. Between two items of a line every other line has one; so it is among a line's members."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, dict[ItemT, None]]] = {}
        """By line and member, each in the order of their turns; items oldest first."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, place: Place, item: ItemT) -> None:
        """It waits from now on."""
        self._lines.setdefault(place.line, {}).setdefault(place.member, {})[item] = None
        self._size += 1

    def take(
        self, may: Callable[[str], bool] = lambda _: True, had: Callable[[Place], int] = lambda _: 0
    ) -> tuple[Place, ItemT] | None:
        """The next one, which waits no longer; None where none may. may: whether a line has a turn at all. had: what a
        member has had so far; of those with least, the next in turn is chosen."""
        line = next((each for each in self._lines if may(each)), None)
        if line is None:
            return None
        members = self._lines.pop(line)
        member = min(members, key=lambda each: had(Place(line, each)))
        items = members.pop(member)
        item = next(iter(items))
        del items[item]
        self._size -= 1
        if items:
            members[member] = items
        if members:
            self._lines[line] = members
        return Place(line, member), item

    def remove(self, place: Place, item: ItemT) -> bool:
        """It gave up. Says whether it was still waiting."""
        members = self._lines.get(place.line, {})
        items = members.get(place.member, {})
        if item not in items:
            return False
        del items[item]
        self._size -= 1
        if not items:
            del members[place.member]
        if not members:
            del self._lines[place.line]
        return True

    def waiting(self, place: Place) -> int:
        """How many wait there."""
        return len(self._lines.get(place.line, {}).get(place.member, {}))

    def in_line(self, line: str) -> int:
        """How many wait in all of it."""
        return sum(map(len, self._lines.get(line, {}).values()))

    def last_of_longest(self, line: str) -> tuple[Place, ItemT] | None:
        """The newest item of the line's member who has most of them; it stays. None where nobody waits."""
        members = self._lines.get(line, {})
        longest = max(members, key=lambda member: len(members[member]), default=None)
        if longest is None:
            return None
        return Place(line, longest), next(reversed(members[longest]))
