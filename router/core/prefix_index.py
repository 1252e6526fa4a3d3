"""The prefixes that each replica holds, as a radix tree of chained block hashes whose edges are runs of blocks.

A chained hash identifies its whole prefix, so one dictionary from first block to node replaces all child tables.
Everything else is in parallel arrays: about 160 bytes for a node of one block and one holder, and 16 more for each
further block.

Each replica's holds form a list from least to most recently used. A use moves the whole path, deepest node first, so an
ancestor is always newer than its descendants, and the oldest hold is always a leaf. Dropping from the old end therefore
models the engines' own eviction, which takes the least recently used leaf first.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.prefix import HASH_BYTES
from router.core.row_pool import RowPool

NONE = -1
KEY_MASK = (1 << 60) - 1
"""Largest key that fits into two digits of a Python integer, which takes 32 bytes instead of 36."""
MANY_HOLDERS = 8
"""Number of holders above which a node gets a dictionary of them."""
COMPARED_PER_STEP = 128
"""Blocks of a chain that are compared in the time of moving one node."""
PASSED_PER_STEP = 8
"""Holds that are skipped in that time."""


class Match:
    """The known part of a chain, and its nodes. It is valid until the index changes; `PrefixIndex.hold` checks that."""

    __slots__ = ("blocks", "hashes", "path", "total", "version")

    def __init__(self, hashes: bytes, path: list[int], blocks: int, version: int) -> None:
        self.hashes = hashes
        self.path = path
        self.blocks = blocks
        """Number of leading blocks that some replica holds."""
        self.total = len(hashes) // HASH_BYTES
        self.version = version


class PrefixIndex:
    """The index of one pool, in which a small number, `slot`, identifies a replica.

    limit_blocks: bounds the remembered blocks and the (node, replica) pairs; beyond it, the replica with the most
    blocks loses its oldest.
    """

    def __init__(self, limit_blocks: int) -> None:
        self.limit_blocks = limit_blocks
        self.blocks = 0
        """Number of blocks in the tree, each counted once."""
        self.held: dict[int, int] = {}
        """Number of blocks by replica."""
        self.version = 0
        self.clock = 0
        """Number of prompts so far, which is the stamp of the latest use."""
        self.steps = 0
        """Cost of `hold` and `cut` so far, in steps of about a microsecond, for callers that bound the cost of
        untrusted input."""
        self._node_of: dict[int, int] = {}
        """Nodes by their first block, as 60 bits."""
        self._nodes = RowPool()
        self._tails: dict[int, bytes] = {}
        """Hashes of a node's blocks except the first, for nodes of several blocks."""
        self._key: list[int] = []
        self._parent, self._start, self._size, self._kids, self._first_hold = (self._nodes.column() for _ in range(5))
        self._by_slot: dict[int, dict[int, int]] = {}
        """The holds of nodes with many holders, by replica."""
        self._holds = RowPool()
        self._slot = self._holds.column("H")
        self._node, self._count, self._stamp, self._older, self._newer, self._next, self._previous = (
            self._holds.column() for _ in range(7)
        )
        self.full: set[int] = set()
        """Replicas that are full: each new prompt costs them an old one."""
        self._oldest: dict[int, int] = {}
        self._newest: dict[int, int] = {}

    @property
    def holds(self) -> int:
        """Number of live (node, replica) pairs."""
        return self._holds.live

    # looking

    def match(self, hashes: bytes) -> Match:
        """The longest known prefix of a chain."""
        path: list[int] = []
        node_of, starts, sizes = self._node_of, self._start, self._size
        total = len(hashes) // HASH_BYTES
        at = 0
        while at < total:
            offset = at * HASH_BYTES
            node = node_of.get(hash(hashes[offset : offset + HASH_BYTES]) & KEY_MASK, NONE)
            if node == NONE or starts[node] != at:
                break
            path.append(node)
            size = sizes[node]
            if size > 1:
                rest = hashes[offset + HASH_BYTES : offset + size * HASH_BYTES]
                tail = self._tails[node]
                if rest != tail:
                    at += 1 + common_blocks(rest, tail)
                    break
            at += size
        return Match(hashes, path, at, self.version)

    def overlap(self, match: Match, slot: int) -> int:
        """Number of the chain's leading blocks that a replica is assumed to hold."""
        hold = self._deepest(match, slot)
        if hold == NONE:
            return 0
        return min(self._start[self._node[hold]] + self._count[hold], match.blocks)

    def stamp(self, match: Match, slot: int) -> int:
        """Stamp, for `age`, of the replica's last use of the deepest part of the chain that it holds; -1 for none."""
        hold = self._deepest(match, slot)
        return NONE if hold == NONE else self._stamp[hold]

    def turnover(self, slot: int) -> float:
        """Number of the pool's prompts since the replica's next block to evict was used; infinite while it has room."""
        oldest = self._oldest.get(slot, NONE)
        if oldest == NONE or slot not in self.full:
            return float("inf")
        return self.clock - self._stamp[oldest]

    def holders(self, match: Match, limit: int) -> Iterator[tuple[int, int]]:
        """At most `limit` pairs of (replica, overlap), deepest node first; holders of one node take turns."""
        seen: set[int] = set()
        for node in reversed(match.path):
            first = hold = self._first_hold[node]
            while hold != NONE:
                slot = self._slot[hold]
                if slot not in seen:
                    if len(seen) == limit:
                        self._first_hold[node] = hold  # the next call begins where this one stopped
                        return
                    seen.add(slot)
                    yield slot, min(self._start[node] + self._count[hold], match.blocks)
                hold = self._next[hold]
                if hold == first:
                    break

    # changing

    def hold(self, slot: int, match: Match) -> None:
        """Record a prompt of the replica, which is then assumed to hold all of it as most recently used."""
        if not match.total:
            return
        if match.version != self.version:
            match = self.match(match.hashes)
        path = self._ended_inside(slot, match) if match.blocks == match.total else self._grown(match)
        self.clock += 1
        self.steps += 1 + len(path) + match.total // COMPARED_PER_STEP
        self.held.setdefault(slot, 0)
        end = match.total
        for node in reversed(path):
            count = min(self._size[node], end - self._start[node])
            hold = self._find(node, slot)
            if hold == NONE:
                hold = self._new_hold(node, slot, count)
            else:
                if count > self._count[hold]:
                    self.held[slot] += count - self._count[hold]
                    self._count[hold] = count
                self._unlink(hold)
            self._link_newest(hold)
            self._stamp[hold] = self.clock
        if self.blocks > self.limit_blocks or self._holds.live > self.limit_blocks:
            self._make_room()

    def trim(self, slot: int, blocks: int) -> None:
        """Evict a replica's least recently used leaves until it holds at most `blocks`."""
        while (excess := self.held.get(slot, 0) - blocks) > 0:
            self.full.add(slot)
            self._shorten(self._oldest[slot], excess)

    def age(self, slot: int, stamp: int) -> None:
        """Drop all blocks that the replica has not used since `stamp`: an engine that has evicted a block of that age
        has evicted all older ones."""
        while (hold := self._oldest.get(slot, NONE)) != NONE and self._stamp[hold] <= stamp:
            self._shorten(hold, self._count[hold])

    def cut(self, slot: int, match: Match, blocks: int) -> None:
        """Limit the replica's hold on this chain to the first `blocks`; descendants are dropped, too."""
        if match.version != self.version:
            match = self.match(match.hashes)
        self.steps += 1 + len(match.path) + match.total // COMPARED_PER_STEP
        if match.blocks <= blocks:
            return  # blocks of the last node beyond that belong to another chain
        for node in reversed(match.path):
            hold = self._find(node, slot)
            keep = blocks - self._start[node]
            if hold == NONE or keep >= self._count[hold]:
                continue
            # this replica's holds below `node` are older, and are dropped with it; below a node that it holds only in
            # part, it holds nothing
            for below in self._below(hold) if self._kids[node] and self._count[hold] == self._size[node] else ():
                self._shorten(below, self._count[below])
            self._shorten(hold, self._count[hold] - max(keep, 0))

    def forget(self, slot: int) -> None:
        """Drop all holds of a replica that was removed or is empty."""
        self.trim(slot, 0)
        self.full.discard(slot)
        self.held.pop(slot, None)

    # nodes

    def _ended_inside(self, slot: int, match: Match) -> list[int]:
        """The path of a fully known chain. If it ends inside a node of which the replica holds more, the rest becomes a
        separate node, because it was not used."""
        last = match.path[-1]
        inside = match.total - self._start[last]
        hold = self._find(last, slot)
        if hold != NONE and self._count[hold] > inside:
            match.path[-1] = self._split(last, inside)
            self.version += 1
        return match.path

    def _grown(self, match: Match) -> list[int]:
        """The path of the whole chain, after adding its unknown part."""
        path, at = match.path, match.blocks
        rest = match.hashes[at * HASH_BYTES :]
        if path:
            last = path[-1]
            inside = at - self._start[last]
            if inside < self._size[last]:
                last = path[-1] = self._split(last, inside)
            elif not self._kids[last]:
                self._tails[last] = self._tails.get(last, b"") + rest
                self._size[last] += match.total - at
                self.blocks += match.total - at
                self.version += 1
                return path
            self._kids[last] += 1
        path.append(self._new_node(path[-1] if path else NONE, at, rest))
        self.version += 1
        return path

    def _new_node(self, parent: int, start: int, hashes: bytes) -> int:
        node = self._row_of_node()
        key = hash(hashes[:HASH_BYTES]) & KEY_MASK
        if len(hashes) > HASH_BYTES:
            self._tails[node] = hashes[HASH_BYTES:]
        self._key[node] = key
        self._node_of[key] = node
        self._parent[node], self._start[node], self._size[node] = parent, start, len(hashes) // HASH_BYTES
        self._kids[node], self._first_hold[node] = 0, NONE
        self.blocks += self._size[node]
        return node

    def _set_tail(self, node: int, tail: bytes) -> None:
        if tail:
            self._tails[node] = tail
        else:
            self._tails.pop(node, None)

    def _row_of_node(self) -> int:
        node = self._nodes.take()
        if node == len(self._key):
            self._key.append(0)
        return node

    def _split(self, node: int, blocks: int) -> int:
        """Move a node's first blocks to a new parent, which is returned; children stay with the node."""
        tail, start, parent = self._tails[node], self._start[node], self._parent[node]
        key = self._key[node]
        cut = (blocks - 1) * HASH_BYTES
        upper = self._row_of_node()
        if cut:
            self._tails[upper] = tail[:cut]
        self._key[upper] = key
        self._parent[upper], self._start[upper], self._size[upper] = parent, start, blocks
        self._kids[upper], self._first_hold[upper] = 1, NONE
        self._node_of[key] = upper
        lower_key = hash(tail[cut : cut + HASH_BYTES]) & KEY_MASK
        self._set_tail(node, tail[cut + HASH_BYTES :])
        self._key[node] = lower_key
        self._node_of[lower_key] = node
        self._parent[node], self._start[node] = upper, start + blocks
        self._size[node] -= blocks
        for hold in self._holds_of(node):
            slot, count = self._slot[hold], self._count[hold]
            self.held[slot] -= min(count, blocks)
            if count > blocks:
                self._count[hold] = count - blocks
                twin = self._new_hold(upper, slot, blocks)
                self._link_after(twin, hold)
                self._stamp[twin] = self._stamp[hold]
            else:
                self._leave(hold)
                self._join(hold, upper)
                self.held[slot] += count
        return upper

    def _release(self, node: int) -> None:
        """Remove a node that no replica holds any more, and that therefore has no descendants."""
        self.blocks -= self._size[node]
        if self._node_of.get(self._key[node]) == node:  # otherwise keys collided, which is extremely rare
            del self._node_of[self._key[node]]
        self._by_slot.pop(node, None)
        if self._parent[node] != NONE:
            self._kids[self._parent[node]] -= 1
        self._tails.pop(node, None)
        self._nodes.give(node)
        self.version += 1

    # holds

    def _find(self, node: int, slot: int) -> int:
        table = self._by_slot.get(node)
        if table is not None:
            return table.get(slot, NONE)
        first = hold = self._first_hold[node]
        while hold != NONE:
            if self._slot[hold] == slot:
                return hold
            hold = self._next[hold]
            if hold == first:
                break
        return NONE

    def _deepest(self, match: Match, slot: int) -> int:
        for node in reversed(match.path):
            hold = self._find(node, slot)
            if hold != NONE:
                return hold
        return NONE

    def _holds_of(self, node: int) -> list[int]:
        holds = []
        first = hold = self._first_hold[node]
        while hold != NONE:
            holds.append(hold)
            hold = self._next[hold]
            if hold == first:
                break
        return holds

    def _below(self, hold: int) -> list[int]:
        """The replica's holds on descendants of a hold's node, oldest first."""
        below = {self._node[hold]}
        holds = []
        passed = 0
        other = self._older[hold]
        while other != NONE:
            passed += 1
            node = self._node[other]
            if self._parent[node] in below:  # its ancestor is newer, so it was processed before
                below.add(node)
                holds.append(other)
            other = self._older[other]
        self.steps += passed // PASSED_PER_STEP
        return holds[::-1]

    def _new_hold(self, node: int, slot: int, count: int) -> int:
        hold = self._holds.take()
        self._slot[hold], self._count[hold] = slot, count
        self._join(hold, node)
        self.held[slot] += count
        return hold

    def _join(self, hold: int, node: int) -> None:
        self._node[hold] = node
        first = self._first_hold[node]
        if first == NONE:
            self._first_hold[node] = self._next[hold] = self._previous[hold] = hold
        else:
            last = self._previous[first]
            self._next[hold], self._previous[hold] = first, last
            self._next[last] = self._previous[first] = hold
        table = self._by_slot.get(node)
        if table is not None:
            table[self._slot[hold]] = hold
        elif len(holds := self._holds_of(node)) > MANY_HOLDERS:
            self._by_slot[node] = {self._slot[each]: each for each in holds}

    def _leave(self, hold: int) -> None:
        node = self._node[hold]
        following, before = self._next[hold], self._previous[hold]
        self._next[before], self._previous[following] = following, before
        if self._first_hold[node] == hold:
            self._first_hold[node] = NONE if following == hold else following
        table = self._by_slot.get(node)
        if table is not None:
            del table[self._slot[hold]]

    def _shorten(self, hold: int, blocks: int) -> None:
        """Remove blocks from the end of a hold. An empty hold is dropped, and so is a node without holds."""
        node, slot = self._node[hold], self._slot[hold]
        blocks = min(blocks, self._count[hold])
        self.held[slot] -= blocks
        self._count[hold] -= blocks
        if not self._count[hold]:
            self._unlink(hold)
            self._leave(hold)
            self._holds.give(hold)
            if self._first_hold[node] == NONE:
                self._release(node)
                return
        only = self._first_hold[node]
        if self._next[only] == only and not self._kids[node]:
            lost = self._size[node] - self._count[only]
            if lost > 0:
                self._size[node] -= lost
                self.blocks -= lost
                self._set_tail(node, self._tails[node][: (self._size[node] - 1) * HASH_BYTES])
                self.version += 1

    # order of use

    def _link_newest(self, hold: int) -> None:
        slot = self._slot[hold]
        newest = self._newest.get(slot, NONE)
        self._older[hold], self._newer[hold] = newest, NONE
        if newest == NONE:
            self._oldest[slot] = hold
        else:
            self._newer[newest] = hold
        self._newest[slot] = hold

    def _link_after(self, hold: int, older: int) -> None:
        """Insert a hold as the next newer one after `older`."""
        newer = self._newer[older]
        self._older[hold], self._newer[hold] = older, newer
        self._newer[older] = hold
        if newer == NONE:
            self._newest[self._slot[hold]] = hold
        else:
            self._older[newer] = hold

    def _unlink(self, hold: int) -> None:
        slot, older, newer = self._slot[hold], self._older[hold], self._newer[hold]
        if older == NONE:
            self._oldest[slot] = newer
        else:
            self._newer[older] = newer
        if newer == NONE:
            self._newest[slot] = older
        else:
            self._older[newer] = older

    def _make_room(self) -> None:
        """Shrink the index to its limit: the replica with the most blocks loses a sixteenth, so that this is rare."""
        while self.blocks > self.limit_blocks or self._holds.live > self.limit_blocks:
            slot = max(self.held, key=self.held.__getitem__)
            self.trim(slot, self.held[slot] - max(1, self.held[slot] // 16))


def common_blocks(left: bytes, right: bytes) -> int:
    """Number of whole blocks that both begin with, found by bisection, with each comparison at memory speed."""
    low, high = 0, min(len(left), len(right)) // HASH_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if left[low * HASH_BYTES : middle * HASH_BYTES] == right[low * HASH_BYTES : middle * HASH_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low
