"""The prefix cache: a radix tree whose digits are whole pages of tokens.

A path from a root spells a prefix, and each node is the page that holds the keys and values of its last tokens. Every
namespace (a salt, and an adapter where there is one) has a root of its own. Pages that no sequence owns are evicted
from the leaves, the least recently used first; because a sequence owns its whole path, an owned page is never below an
unowned one.

Pages are shared whole. Where a prompt leaves the tree within a page, the page's beginning is copied, so that only new
tokens are computed. For that the last page of an ended sequence is cached although its tokens do not fill it: such a
page stays a leaf.
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
    """One page of a cached prefix; `page` -1: a root."""

    parent: Node | None
    digit: Digit
    page: int
    namespace: Namespace
    children: dict[Digit, Node] = field(default_factory=dict)
    order: list[Digit] = field(default_factory=list)
    """The children's digits, sorted: the most similar ones are adjacent to its position."""
    used: int = 0
    """Tick of the cache at which it was last matched, inserted or given back."""

    def add(self, digit: Digit, page: int) -> Node:
        """Add a child."""
        child = self.children[digit] = Node(self, digit, page, self.namespace)
        bisect.insort(self.order, digit)
        return child

    def drop(self, child: Node) -> None:
        """Forget a child."""
        del self.children[child.digit]
        del self.order[bisect.bisect_left(self.order, child.digit)]

    def most_alike(self, digit: Digit) -> tuple[int, Node | None]:
        """The number of leading tokens of `digit` that a child shares at most, and that child; (0, None): none shares
        any. Of several, the first child in order that does not sort before `digit`, or else the last one.

        Two comparisons, however many children there are: all prompts of an organization may be below one node.
        """
        place = bisect.bisect_left(self.order, digit)
        neighbours = [*self.order[place : place + 1], *self.order[max(place - 1, 0) : place]]
        best = max(neighbours, key=lambda other: _alike(other, digit), default=())
        alike = _alike(best, digit)
        return alike, self.children[best] if alike else None

    def covers(self, digit: Digit) -> bool:
        """A child begins with all of `digit`."""
        return self.most_alike(digit)[0] == len(digit)


class Begun(NamedTuple):
    """A page of the caller's own that is to begin like a cached one."""

    source: int
    """The cached page. It may be evicted at any time: copy it before anything is computed."""
    page: int
    tokens: int
    """Number of equal tokens: at least one, and fewer than a page has, or than `limit` allows."""


class RadixCache:
    """Owns the page pool together with the sequences: they take, share and release pages only through it."""

    def __init__(
        self, pages: PagePool, page_tokens: int, events: BlockEvents | None = None, most_idle: int | None = None
    ) -> None:
        """events: receives every page stored and removed, but not the ends of steps. most_idle: pages that are kept
        while no sequence owns them; None: all."""
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

        Where that prefix is cached in another page already, that page replaces the caller's in `pages` and the
        caller's is given back: the same keys and values are never stored twice. A page that choices share is not
        replaced, and nothing after it is cached; the last of them will do both.
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
                    # choices that share it would still own pages below one they do not own
                    break
                self._pages.share((child.page,))
                self._pages.give_back((pages[index],))
                pages[index] = child.page
            child.used = self._tick
            node = child
        if stored:
            self._events.stored([node.page for node in stored], [node.digit for node in stored], self._above(stored[0]))

    def begin_page(self, namespace: Namespace, tokens: Sequence[int], pages: Sequence[int], limit: int) -> Begun | None:
        """A new page, owned by the caller, for the tokens after `pages`, which `match` found for tokens[:limit]. None:
        no cached page begins with any of them, or there is no room."""
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
        """Call it after `insert`, once no sequence will write into these pages any more: cache the last one too, which
        the tokens do not fill. Skipped where choices share it, and where a cached page begins with the same tokens."""
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
        """End the caller's ownership of pages. Cached ones stay until they are evicted."""
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
        """`count` new pages owned by the caller, evicting as needed, or None when that is not enough."""
        if count > self._pages.free + self._pages.idle:
            return None
        while self._pages.free < count:
            self._evict_one()
        return self._pages.take(count)

    def clear(self) -> None:
        """Evict everything that no sequence owns."""
        while self._pages.idle:
            self._evict_one()

    def _above(self, node: Node) -> tuple[int | None, Namespace]:
        parent = node.parent
        return (None if parent is None or parent.page < 0 else parent.page), node.namespace

    def _offer(self, node: Node) -> None:
        """Remember a node that may be evictable."""
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
        if len(node.digit) == self._page_tokens:  # the other pages were never reported
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
