"""Turns of organizations at something of which there is little, such as connections."""

from __future__ import annotations

import asyncio
import weakref


class Turns:
    """Each organization has at most so many at once: what it asks for beyond waits for its own, and for no other's."""

    def __init__(self, most_each: int) -> None:
        self._most_each = most_each
        self._of: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    def of(self, organization_id: str) -> asyncio.Semaphore:
        """The organization's turns, to be held while one is taken."""
        turn = self._of.get(organization_id)
        if turn is None:
            turn = self._of[organization_id] = asyncio.Semaphore(self._most_each)
        return turn
