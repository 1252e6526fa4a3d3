"""The prefix index against a naive twin that remembers every block of every replica by itself."""

from __future__ import annotations

import random
from collections import OrderedDict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contracts.prefix import HASH_BYTES, chain_bytes, chain_tokens, root
from router.core.prefix_index import PrefixIndex
from tests.examples import examples

SLOTS = 3


def chain(letters: str) -> bytes:
    """One block for each letter: equal letters in front, equal hashes in front."""
    return chain_bytes(root("m"), b"".join(letter.encode() * 256 for letter in letters)).hashes


class NaiveTwin:
    """By replica: every block in order of last use, oldest first."""

    def __init__(self) -> None:
        self.blocks: dict[int, OrderedDict[bytes, None]] = {slot: OrderedDict() for slot in range(SLOTS)}
        self.before: dict[bytes, bytes] = {}
        """What a block hangs from."""

    def hold(self, slot: int, hashes: bytes) -> None:
        for at in range(len(hashes) - HASH_BYTES, -1, -HASH_BYTES):
            block = hashes[at : at + HASH_BYTES]
            self.blocks[slot].pop(block, None)
            self.blocks[slot][block] = None
            self.before[block] = hashes[max(at - HASH_BYTES, 0) : at]

    def overlap(self, slot: int, hashes: bytes) -> int:
        count = 0
        while hashes[count * HASH_BYTES : (count + 1) * HASH_BYTES] in self.blocks[slot]:
            count += 1
        return count

    def cut(self, slot: int, hashes: bytes, blocks: int) -> None:
        gone = hashes[blocks * HASH_BYTES : (blocks + 1) * HASH_BYTES]
        for block in list(self.blocks[slot]):
            above = block
            while above not in (b"", gone):
                above = self.before[above]
            if above:
                del self.blocks[slot][block]

    def trim(self, slot: int, blocks: int) -> None:
        while len(self.blocks[slot]) > blocks:
            self.blocks[slot].popitem(last=False)


PROMPTS = st.text("ab", min_size=0, max_size=9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, SLOTS - 1), PROMPTS),
        st.tuples(st.just("cut"), st.integers(0, SLOTS - 1), PROMPTS),
        st.tuples(st.just("trim"), st.integers(0, SLOTS - 1), st.integers(0, 12)),
        st.tuples(st.just("forget"), st.integers(0, SLOTS - 1), st.just(0)),
    ),
    max_size=40,
)


@examples(nightly=200)
@given(STEPS, st.lists(PROMPTS, min_size=1, max_size=5))
@example([("hold", 2, "aa"), ("hold", 2, "b"), ("hold", 2, "a"), ("trim", 2, 2)], ["b"])  # a prompt ends inside a node
def test_overlaps_are_those_of_the_naive_twin(steps: list[tuple[str, int, str | int]], asked: list[str]) -> None:
    index, twin = PrefixIndex(10_000), NaiveTwin()
    for what, slot, argument in steps:
        if what == "cut":
            hashes, blocks = chain(str(argument)), max(len(str(argument)) - 1, 0)
            index.cut(slot, index.match(hashes), blocks)
            twin.cut(slot, hashes, blocks)
        elif isinstance(argument, str):
            index.hold(slot, index.match(chain(argument)))
            twin.hold(slot, chain(argument))
        elif what == "trim":
            index.trim(slot, argument)
            twin.trim(slot, argument)
        else:
            index.forget(slot)
            twin.trim(slot, 0)
        for one in range(SLOTS):
            assert index.held.get(one, 0) == len(twin.blocks[one])
    for letters in asked:
        hashes = chain(letters)
        match = index.match(hashes)
        overlaps = {slot: twin.overlap(slot, hashes) for slot in range(SLOTS)}
        assert {slot: index.overlap(match, slot) for slot in range(SLOTS)} == overlaps
        found = list(index.holders(match, SLOTS))
        assert dict(found) == {slot: count for slot, count in overlaps.items() if count}
    kept = {block for blocks in twin.blocks.values() for block in blocks}
    assert index.blocks >= len(kept)


@pytest.mark.parametrize("seed", range(2))
def test_a_full_index_forgets_the_oldest_and_stays_within_its_bounds(seed: int) -> None:
    dice = random.Random(seed)
    index = PrefixIndex(500)
    for _ in range(1_000):
        tokens = [dice.randrange(4) for _ in range(64 * dice.randrange(1, 20))]
        index.hold(dice.randrange(40), index.match(chain_tokens(root("m"), tokens).hashes))
        assert index.blocks <= 500
        assert index.holds <= 500
    for slot in range(40):
        index.forget(slot)
    assert (index.blocks, index.holds, len(index._node_of), len(index._by_slot)) == (0, 0, 0, 0)


def test_what_an_engine_evicted_tells_what_else_it_evicted() -> None:
    index = PrefixIndex(1_000)
    for letters in ("aaaa", "bbbb", "cccc"):
        index.hold(0, index.match(chain(letters)))
    index.age(0, index.stamp(index.match(chain("bbbb")), 0))
    assert [index.overlap(index.match(chain(letters)), 0) for letters in ("aaaa", "bbbb", "cccc")] == [0, 0, 4]


def test_cutting_a_chain_takes_what_hangs_from_it_and_nothing_else() -> None:
    index = PrefixIndex(1_000)
    for letters in ("aabb", "aabc", "aadd", "eeee"):
        index.hold(0, index.match(chain(letters)))
        index.hold(1, index.match(chain(letters)))
    index.cut(0, index.match(chain("aabb")), 2)
    overlaps = [index.overlap(index.match(chain(letters)), 0) for letters in ("aabb", "aabc", "aadd", "eeee")]
    assert overlaps == [2, 2, 4, 4]
    assert index.overlap(index.match(chain("aabb")), 1) == 4


def test_many_holders_take_turns_as_candidates() -> None:
    index = PrefixIndex(10_000)
    for slot in range(100):
        index.hold(slot, index.match(chain("aaa")))
    seen: set[int] = set()
    for _ in range(25):
        found = list(index.holders(index.match(chain("aaab")), 4))
        assert [overlap for _, overlap in found] == [3, 3, 3, 3]
        seen.update(slot for slot, _ in found)
    assert seen == set(range(100))
