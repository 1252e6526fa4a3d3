"""Which pages of key and value memory are free, and how many owners the others have."""

from __future__ import annotations

from collections.abc import Iterable


class PagePool:
    """Hands out page numbers with reference counts. A page without owners is free at once."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._owners = [0] * total

    @property
    def free(self) -> int:
        """Pages that nobody owns."""
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """`count` fresh pages, each with one owner, or None when there are not that many."""
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
                raise ValueError(f"page {page} is free and cannot be shared")
            self._owners[page] += 1

    def give_back(self, pages: Iterable[int]) -> None:
        """Take one owner from each page. Raises ValueError for a page that is free already."""
        for page in pages:
            if not self._owners[page]:
                raise ValueError(f"page {page} was given back twice")
            self._owners[page] -= 1
            if not self._owners[page]:
                self._free.append(page)

    def owners(self, page: int) -> int:
        """How many owners a page has; 0: free."""
        return self._owners[page]
