"""A radix prefix cache as far as a model of an engine needs it: which blocks are held or in use, and who goes first.

A block's key names its whole prefix, so the tree needs no nodes: a set of keys is one. Blocks no sequence uses are kept
in the order they were let go, each sequence's deepest first; taking the oldest therefore always takes a leaf.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

Block = int | bytes
Listener = Callable[[bool, Block], None]
"""Called with (stored, block): a KV event."""


class BlockCache:
    """Counts blocks; the engine turns them into tokens and decides when to evict."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._users: dict[Block, int] = {}
        self._idle: OrderedDict[Block, None] = OrderedDict()
        self._listener = listener

    def __len__(self) -> int:
        return len(self._users)

    @property
    def idle(self) -> int:
        """Blocks that may be evicted."""
        return len(self._idle)

    @property
    def locked(self) -> int:
        """Blocks in use."""
        return len(self._users) - len(self._idle)

    def match(self, blocks: Sequence[Block]) -> int:
        """How many leading blocks are held."""
        users = self._users
        for count, block in enumerate(blocks):
            if block not in users:
                return count
        return len(blocks)

    def lock(self, blocks: Sequence[Block]) -> None:
        """Use these, a whole path from its first block; those that are missing are stored."""
        users, idle = self._users, self._idle
        for block in blocks:
            count = users.get(block)
            if count is None:
                users[block] = 1
                if self._listener is not None:
                    self._listener(True, block)
            else:
                if count == 0:
                    del idle[block]
                users[block] = count + 1

    def unlock(self, blocks: Sequence[Block]) -> None:
        """Stop using a path that was locked."""
        users, idle = self._users, self._idle
        for block in reversed(blocks):
            users[block] -= 1
            if users[block] == 0:
                idle[block] = None

    def evict(self, count: int) -> int:
        """Drop up to so many idle blocks, least recently used first; how many went."""
        gone = min(count, len(self._idle))
        for _ in range(gone):
            block, _ = self._idle.popitem(last=False)
            del self._users[block]
            if self._listener is not None:
                self._listener(False, block)
        return gone

    def clear(self) -> None:
        """Forget everything that is idle."""
        self.evict(len(self._idle))
