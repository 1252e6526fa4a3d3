"""The parts of a radix prefix cache that a modelled engine needs: which blocks are cached, in use, or evicted next.

A block's key identifies its whole prefix, so the tree is a set of keys and needs no nodes. Blocks that no sequence uses
are kept in the order of their release, each sequence's deepest block first; the oldest is therefore always a leaf.
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
        """The number of leading blocks that are cached."""
        users = self._users
        for count, block in enumerate(blocks):
            if block not in users:
                return count
        return len(blocks)

    def lock(self, blocks: Sequence[Block]) -> None:
        """Use a whole path, from its first block; missing blocks are stored."""
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
        """Stop using a locked path."""
        users, idle = self._users, self._idle
        for block in reversed(blocks):
            users[block] -= 1
            if users[block] == 0:
                idle[block] = None

    def evict(self, count: int) -> int:
        """Drop at most `count` idle blocks, the least recently used first; return the number dropped."""
        evicted = min(count, len(self._idle))
        for _ in range(evicted):
            block, _ = self._idle.popitem(last=False)
            del self._users[block]
            if self._listener is not None:
                self._listener(False, block)
        return evicted

    def clear(self) -> None:
        """Drop all idle blocks."""
        self.evict(len(self._idle))
