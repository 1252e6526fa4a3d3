"""The prefix cache written for reading: a table from whole prefixes to pages, searched from end to end; and what must
hold of `RadixCache` at any time.

`NaiveCache` behaves exactly like `RadixCache`, page numbers included, and is what tests compare that with.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.embedded.kv.pages import PagePool
from engines.embedded.kv.radix import Begun, Node, RadixCache

Prefix = tuple[str, tuple[int, ...]]


class NaiveCache:
    """Same promises as `RadixCache`."""

    def __init__(self, pages: PagePool, page_tokens: int, most_idle: int) -> None:
        self._pages = pages
        self._most_idle = most_idle
        self._page_tokens = page_tokens
        self.page_of: dict[Prefix, int] = {}
        self._used: dict[Prefix, int] = {}
        self._tick = 0

    def match(self, salt: str, tokens: Sequence[int], limit: int) -> list[int]:
        """The pages of the longest cached prefix of tokens[:limit], which the caller owns then as well."""
        self._tick += 1
        found: list[int] = []
        for prefix in self._prefixes(salt, tokens[:limit]):
            if prefix not in self.page_of:
                break
            self._used[prefix] = self._tick
            found.append(self.page_of[prefix])
        self._pages.share(found)
        return found

    def insert(self, salt: str, tokens: Sequence[int], pages: list[int]) -> None:
        """Cache pages[i] for the i-th whole page of tokens, or replace it by the page that is cached already."""
        self._tick += 1
        for index, prefix in enumerate(self._prefixes(salt, tokens)[: len(pages)]):
            if prefix not in self.page_of:
                self.page_of[prefix] = pages[index]
                self._pages.keep(pages[index])
            elif self.page_of[prefix] != pages[index]:
                if self._pages.owners(pages[index]) > 1:
                    break
                self._pages.share([self.page_of[prefix]])
                self._pages.give_back([pages[index]])
                pages[index] = self.page_of[prefix]
            self._used[prefix] = self._tick

    def begin_page(self, salt: str, tokens: Sequence[int], pages: Sequence[int], limit: int) -> Begun | None:
        """A fresh page and the cached one behind `pages` that has most of the next tokens at its beginning; of several
        the first in the order of their tokens that is not in front of these, or else the last one."""
        start, most = len(pages) * self._page_tokens, 0
        wanted = tuple(tokens[: min(start + self._page_tokens, limit)])
        best: list[tuple[int, ...]] = []
        for other_salt, other in self.page_of:
            if other_salt == salt and start < len(other) <= start + self._page_tokens:
                ends = [end for end in range(start + 1, limit + 1) if other[:end] == tuple(tokens[:end])]
                alike = min(max(ends, default=start), len(other)) - start
                if alike > most:
                    best, most = [], alike
                if alike == most:
                    best.append(other)
        if not most:
            return None
        source = self.page_of[salt, min((other for other in best if other >= wanted), default=max(best))]
        self._pages.share([source])
        taken = self.take(1)
        self.release([source])
        return None if taken is None else Begun(source, taken[0], most)

    def insert_rest(self, salt: str, tokens: Sequence[int], pages: Sequence[int]) -> None:
        """Cache the last page, which the tokens do not fill."""
        whole = len(tokens) // self._page_tokens
        above = (salt, tuple(tokens[: whole * self._page_tokens]))
        if len(above[1]) == len(tokens) or (whole and self.page_of.get(above) != pages[whole - 1]):
            return
        page, mine = pages[whole], tuple(tokens)
        covered = any(other_salt == salt and other[: len(mine)] == mine for other_salt, other in self.page_of)
        if not covered and self._pages.owners(page) == 1 and page not in self.page_of.values():
            self.page_of[salt, mine], self._used[salt, mine] = page, 0
            self._pages.keep(page)

    def release(self, pages: Sequence[int]) -> None:
        """End the caller's ownership of pages."""
        self._tick += 1
        self._pages.give_back(pages)
        for prefix, page in self.page_of.items():
            if page in pages:
                self._used[prefix] = self._tick
        while self._pages.idle > self._most_idle:
            self._evict()

    def take(self, count: int) -> list[int] | None:
        """`count` fresh pages, evicting what is needed, or None when that is not enough."""
        if count > self._pages.free + self._pages.idle:
            return None
        while self._pages.free < count:
            self._evict()
        return self._pages.take(count)

    def _evict(self) -> None:
        leaves = [prefix for prefix in self.page_of if self._is_idle_leaf(prefix)]
        oldest = min(leaves, key=lambda prefix: (self._used[prefix], self.page_of[prefix]))
        self._pages.drop(self.page_of.pop(oldest))
        del self._used[oldest]

    def _is_idle_leaf(self, prefix: Prefix) -> bool:
        salt, tokens = prefix
        below = (
            len(tokens) % self._page_tokens == 0
            and any(  # nothing stands below a page that is not full
                other_salt == salt and len(other) > len(tokens) and other[: len(tokens)] == tokens
                for other_salt, other in self.page_of
            )
        )
        return not below and self._pages.is_idle(self.page_of[prefix])

    def _prefixes(self, salt: str, tokens: Sequence[int]) -> list[Prefix]:
        ends = range(self._page_tokens, len(tokens) + 1, self._page_tokens)
        return [(salt, tuple(tokens[:end])) for end in ends]


def cached_pages(cache: RadixCache) -> int:
    """Pages in the tree, owned or not."""
    return sum(node is not None for node in cache._nodes)


def check_tree(cache: RadixCache) -> None:
    """The tree and the pool agree."""
    seen: list[Node] = []
    stack = list(cache._roots.values())
    while stack:
        node = stack.pop()
        assert node.order == sorted(node.children)
        for child in node.children.values():
            assert child.parent is node
            assert child.namespace == node.namespace
            assert cache._nodes[child.page] is child
            assert len(child.digit) == cache._page_tokens or not child.children, "a page that is not full is a leaf"
            # what is owned below is owned above, so every idle page can be reached from the leaves
            assert node.page < 0 or cache._pages.owners(node.page) >= cache._pages.owners(child.page)
            seen.append(child)
            stack.append(child)
        assert node.page >= 0 or node.children, "a root without children"
    assert len(seen) == cached_pages(cache)
    assert sum(cache._pages.owners(node.page) == 0 for node in seen) == cache._pages.idle
