"""A queue in which groups take turns, and so do the members of each group. It does no I/O.

A group, such as an organization, must not delay other groups. A member, such as one network among all networks of
strangers, must not delay the rest of its group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

ItemT = TypeVar("ItemT")


class QueueKey(NamedTuple):
    """The owner of an item in the queue."""

    group: str
    member: str = ""


class FairQueue(Generic[ItemT]):
    """Between two items of a group, every other group has one. The same holds for the members of a group."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[ItemT, None]]] = {}
        """Items by group and member: both in the order of their turns, items oldest first."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, key: QueueKey, item: ItemT) -> None:
        """Append an item to those of its member."""
        self._groups.setdefault(key.group, {}).setdefault(key.member, {})[item] = None
        self._size += 1

    def take(
        self, may: Callable[[str], bool] = lambda _: True, had: Callable[[QueueKey], int] = lambda _: 0
    ) -> tuple[QueueKey, ItemT] | None:
        """Remove and return the next item; None if no group may have one. may: whether a group may have one. had: a
        member's share so far; the next member is one with the smallest share."""
        group = next((each for each in self._groups if may(each)), None)
        if group is None:
            return None
        members = self._groups.pop(group)
        member = min(members, key=lambda each: had(QueueKey(group, each)))
        items = members.pop(member)
        item = next(iter(items))
        del items[item]
        self._size -= 1
        if items:
            members[member] = items
        if members:
            self._groups[group] = members
        return QueueKey(group, member), item

    def remove(self, key: QueueKey, item: ItemT) -> bool:
        """Remove an unwanted item; False if it is not in the queue."""
        members = self._groups.get(key.group, {})
        items = members.get(key.member, {})
        if item not in items:
            return False
        del items[item]
        self._size -= 1
        if not items:
            del members[key.member]
        if not members:
            del self._groups[key.group]
        return True

    def size_of(self, key: QueueKey) -> int:
        """Count a member's items."""
        return len(self._groups.get(key.group, {}).get(key.member, {}))

    def size_of_group(self, group: str) -> int:
        """Count the items of all members of a group."""
        return sum(map(len, self._groups.get(group, {}).values()))

    def newest_of_largest(
        self, group: str, had: Callable[[QueueKey], int] = lambda _: 0
    ) -> tuple[QueueKey, ItemT] | None:
        """Find the newest item of the group's member with the most items; if several have as many, of the one with the
        largest share so far. None for an empty group."""
        members = self._groups.get(group, {})
        largest = max(members, key=lambda each: (len(members[each]), had(QueueKey(group, each))), default=None)
        if largest is None:
            return None
        return QueueKey(group, largest), next(reversed(members[largest]))
