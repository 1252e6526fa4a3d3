"""Tracks which pages of key and value memory are free or kept by the prefix cache, and the number of owners of each.

A page is in one of three states. A *pinned* page belongs to at least one sequence. An *idle* page belongs to none, but
the cache keeps it, so it can be evicted. A *free* page is neither.
"""

from __future__ import annotations

from collections.abc import Iterable


class PagePool:
    """Hands out page numbers with reference counts. A page without owners that is not cached is free at once."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._owners = [0] * total
        self._kept = [False] * total
        self._idle = 0

    @property
    def free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free)

    @property
    def idle(self) -> int:
        """Pages that only the cache holds."""
        return self._idle

    @property
    def pinned(self) -> int:
        """Pages that sequences own; a shared page counts once."""
        return self.total - len(self._free) - self._idle

    def take(self, count: int) -> list[int] | None:
        """`count` new pages, each with one owner, or None if fewer are free."""
        if count > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._owners[page] = 1
        return taken

    def share(self, pages: Iterable[int]) -> None:
        """Give each page one more owner. Raises ValueError for a page that is free."""
        for page in pages:
            if not self._owners[page]:
                if not self._kept[page]:
                    raise ValueError(f"page {page} is free and cannot be shared")
                self._idle -= 1
            self._owners[page] += 1

    def give_back(self, pages: Iterable[int]) -> None:
        """Remove one owner from each page. Raises ValueError for a page that has none."""
        for page in pages:
            if not self._owners[page]:
                raise ValueError(f"page {page} was given back twice")
            self._owners[page] -= 1
            if not self._owners[page]:
                if self._kept[page]:
                    self._idle += 1
                else:
                    self._free.append(page)

    def keep(self, page: int) -> None:
        """Let the cache hold this page. Raises ValueError unless a sequence owns it and it is not cached yet."""
        if self._kept[page] or not self._owners[page]:
            raise ValueError(f"page {page} cannot be kept: it is {'kept already' if self._kept[page] else 'free'}")
        self._kept[page] = True

    def drop(self, page: int) -> None:
        """Let the cache drop an idle page, which is then free. Raises ValueError for a page in any other state."""
        if not self.is_idle(page):
            raise ValueError(f"page {page} is not idle and cannot be dropped")
        self._kept[page] = False
        self._idle -= 1
        self._free.append(page)

    def is_idle(self, page: int) -> bool:
        """Whether only the cache holds the page."""
        return self._kept[page] and not self._owners[page]

    def is_only(self, page: int) -> bool:
        """Whether exactly one sequence owns the page and the cache does not hold it."""
        return self._owners[page] == 1 and not self._kept[page]

    def owners(self, page: int) -> int:
        """Number of sequences that own a page; 0 if it is idle or free."""
        return self._owners[page]
