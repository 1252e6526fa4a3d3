"""The prefix cache: a radix tree whose digits are whole pages of tokens.

A path from a root spells a prefix, and each node is the page that holds the keys and values of its last tokens. Every
namespace (a salt, and possibly an adapter) has its own root. Pages that no sequence owns are evicted from the leaves,
the least recently used first. A sequence owns its whole path, so an owned page is never below an unowned one.

Pages are shared whole. If a prompt leaves the tree within a page, the page's beginning is copied, so that only new
tokens are computed. For this purpose, the last page of an ended sequence is cached even if its tokens do not fill it.
Such a page stays a leaf.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engines.embedded.kv.events import BlockEvents
from engines.embedded.kv.namespace import Namespace
from engines.embedded.kv.pages import PagePool

Digit = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """One page of a cached prefix; `page` is -1 for a root."""

    parent: Node | None
    digit: Digit
    page: int
    namespace: Namespace
    children: dict[Digit, Node] = field(default_factory=dict)
    order: list[Digit] = field(default_factory=list)
    """The sorted digits of the children. The digits most similar to a new one are next to its position."""
    used: int = 0
    """Tick of the cache at which the node was last matched, inserted or released."""

    def add(self, digit: Digit, page: int) -> Node:
        """Add a child."""
        child = self.children[digit] = Node(self, digit, page, self.namespace)
        bisect.insort(self.order, digit)
        return child

    def drop(self, child: Node) -> None:
        """Remove a child."""
        del self.children[child.digit]
        del self.order[bisect.bisect_left(self.order, child.digit)]

    def most_alike(self, digit: Digit) -> tuple[int, Node | None]:
        """The child that shares the most leading tokens with `digit`, after their number; (0, None) if no child shares
        any. Among equals, it is the first child that does not sort before `digit`, or else the last one.

        It makes two comparisons for any number of children, because all prompts of a tenant may be below one node.
        """
        index = bisect.bisect_left(self.order, digit)
        neighbours = [*self.order[index : index + 1], *self.order[max(index - 1, 0) : index]]
        best = max(neighbours, key=lambda other: _alike(other, digit), default=())
        alike = _alike(best, digit)
        return alike, self.children[best] if alike else None

    def covers(self, digit: Digit) -> bool:
        """Whether a child begins with all of `digit`."""
        return self.most_alike(digit)[0] == len(digit)


class Begun(NamedTuple):
    """A page of the caller that is to begin like a cached page."""

    source: int
    """The cached page. It may be evicted at any time, so copy it before anything is computed."""
    page: int
    tokens: int
    """Number of equal tokens: at least one, and less than a whole page or than `limit` allows."""


class RadixCache:
    """Shares the page pool with the sequences, which take, share and release pages only through this class."""

    def __init__(
        self, pages: PagePool, page_tokens: int, events: BlockEvents | None = None, most_idle: int | None = None
    ) -> None:
        """events: receives every page stored and removed, but not the ends of steps. most_idle: number of pages kept
        while no sequence owns them; None for all."""
        self.evicted_pages = 0
        self._most_idle = pages.total if most_idle is None else most_idle
        self._pages = pages
        self._page_tokens = page_tokens
        self._events = BlockEvents() if events is None else events
        self._roots: dict[Namespace, Node] = {}
        self._nodes: list[Node | None] = [None] * pages.total  # by page
        self._leaves: list[tuple[int, int]] = []
        """Heap of (tick, page). Entries may be outdated; `_evict_one` checks them."""
        self._tick = 0

    def match(self, namespace: Namespace, tokens: Sequence[int], limit: int) -> list[int]:
        """The pages of the longest cached prefix of tokens[:limit]; the caller becomes an owner of them."""
        node = self._roots.get(namespace)
        found: list[int] = []
        if node is None:
            return found
        self._tick += 1
        for start in range(0, limit - self._page_tokens + 1, self._page_tokens):
            child = node.children.get(tuple(tokens[start : start + self._page_tokens]))
            if child is None:
                break
            child.used = self._tick
            found.append(child.page)
            node = child
        self._pages.share(found)
        return found

    def insert(self, namespace: Namespace, tokens: Sequence[int], pages: list[int]) -> None:
        """Cache pages[i] for the i-th whole page of tokens. The caller owns all of them and keeps owning them.

        If another page already caches that prefix, it replaces the caller's page in `pages`, and the caller's page is
        released, so that the same keys and values are never stored twice. A page that choices share is not replaced,
        and nothing after it is cached; the last of these choices will do both.
        """
        count = min(len(tokens) // self._page_tokens, len(pages))
        if not count:
            return
        self._tick += 1
        node = self._roots.setdefault(namespace, Node(None, (), -1, namespace))
        stored: list[Node] = []
        for index in range(count):
            start = index * self._page_tokens
            digit = tuple(tokens[start : start + self._page_tokens])
            child = node.children.get(digit)
            if child is None:
                child = self._nodes[pages[index]] = node.add(digit, pages[index])
                self._pages.keep(child.page)
                stored.append(child)
            elif child.page != pages[index]:
                if self._pages.owners(pages[index]) > 1:
                    # choices that share it would own pages below a page that they do not own
                    break
                self._pages.share((child.page,))
                self._pages.give_back((pages[index],))
                pages[index] = child.page
            child.used = self._tick
            node = child
        if stored:
            self._events.stored([node.page for node in stored], [node.digit for node in stored], self._above(stored[0]))

    def begin_page(self, namespace: Namespace, tokens: Sequence[int], pages: Sequence[int], limit: int) -> Begun | None:
        """A new page, owned by the caller, for the tokens after `pages`, which `match` found for tokens[:limit].
        None if no cached page begins with any of these tokens, or if no page is free."""
        node = self._nodes[pages[-1]] if pages else self._roots.get(namespace)
        if node is None:
            return None
        start = len(pages) * self._page_tokens
        wanted = tuple(tokens[start : min(start + self._page_tokens, limit)])
        alike, source = node.most_alike(wanted)
        if source is None:
            return None
        self._pages.share((source.page,))  # otherwise making room might evict it
        taken = self.take(1)
        self.release((source.page,))
        return None if taken is None else Begun(source.page, taken[0], alike)

    def insert_rest(self, namespace: Namespace, tokens: Sequence[int], pages: Sequence[int]) -> None:
        """Cache the last page too, which the tokens do not fill. Call it after `insert`, once no sequence will write to
        these pages. Does nothing if choices share the page, or if a cached page begins with the same tokens."""
        whole, rest = divmod(len(tokens), self._page_tokens)
        if not rest:
            return
        above = self._nodes[pages[whole - 1]] if whole else self._roots.get(namespace) or Node(None, (), -1, namespace)
        page, digit = pages[whole], tuple(tokens[whole * self._page_tokens :])
        if above is None or self._nodes[page] is not None or self._pages.owners(page) > 1:
            return
        if above.covers(digit):
            return
        if not whole:
            self._roots[namespace] = above
        self._nodes[page] = above.add(digit, page)
        self._pages.keep(page)

    def release(self, pages: Sequence[int]) -> None:
        """End the caller's ownership of pages. Cached pages stay until they are evicted."""
        self._tick += 1
        self._pages.give_back(pages)
        for page in pages:
            node = self._nodes[page]
            if node is not None:
                node.used = self._tick
                self._offer(node)
        while self._pages.idle > self._most_idle:
            self._evict_one()

    def take(self, count: int) -> list[int] | None:
        """Evict as needed and return `count` new pages owned by the caller, or None if there are not enough."""
        if count > self._pages.free + self._pages.idle:
            return None
        while self._pages.free < count:
            self._evict_one()
        return self._pages.take(count)

    def clear(self) -> None:
        """Evict all pages that no sequence owns."""
        while self._pages.idle:
            self._evict_one()

    def _above(self, node: Node) -> tuple[int | None, Namespace]:
        parent = node.parent
        return (None if parent is None or parent.page < 0 else parent.page), node.namespace

    def _offer(self, node: Node) -> None:
        """Record a node that may be evictable."""
        if not node.children and self._pages.is_idle(node.page):
            heapq.heappush(self._leaves, (node.used, node.page))
            if len(self._leaves) > 4 * self._pages.total:
                self._leaves = [entry for entry in set(self._leaves) if self._evictable(entry)]
                heapq.heapify(self._leaves)

    def _evictable(self, entry: tuple[int, int]) -> bool:
        used, page = entry
        node = self._nodes[page]
        return node is not None and node.used == used and not node.children and self._pages.is_idle(page)

    def _evict_one(self) -> None:
        entry = heapq.heappop(self._leaves)
        while not self._evictable(entry):
            entry = heapq.heappop(self._leaves)
        node = self._nodes[entry[1]]
        assert node is not None
        assert node.parent is not None
        self._nodes[node.page] = None
        self._pages.drop(node.page)
        self.evicted_pages += 1
        if len(node.digit) == self._page_tokens:  # partial pages were never reported
            self._events.removed(node.page)
        node.parent.drop(node)
        if node.parent.page >= 0:
            self._offer(node.parent)
        elif not node.parent.children:
            del self._roots[node.namespace]


def _alike(one: Digit, other: Digit) -> int:
    """Number of common leading tokens."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
