"""The prefix cache against its naive twin, and what the tree promises."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from engines.embedded.kv.events import BlockEvents
from engines.embedded.kv.namespace import Namespace
from engines.embedded.kv.pages import PagePool
from engines.embedded.kv.radix import RadixCache
from tests.engines.embedded.naive_cache import NaiveCache, cached_pages, check_tree
from tests.examples import examples

PAGE, TWINS_PAGE = 2, 3
TOTAL = 12
# few tokens and few salts, so that random prompts often share prefixes
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=12)
SALTS = st.sampled_from(["", "a"])


class Twins(RuleBasedStateMachine):
    """Both caches live through the life of random requests: match, begin a page, take what is missing, insert,
    release."""

    most_idle = TOTAL

    def __init__(self) -> None:
        super().__init__()
        self.radix_pool, self.naive_pool = PagePool(TOTAL), PagePool(TOTAL)
        self.radix = RadixCache(self.radix_pool, TWINS_PAGE, most_idle=self.most_idle)
        self.naive = NaiveCache(self.naive_pool, TWINS_PAGE, self.most_idle)
        self.held: list[tuple[str, list[int], list[int], list[int]]] = []

    @rule(salt=SALTS, tokens=PROMPTS)
    def start(self, salt: str, tokens: list[int]) -> None:
        found = self.radix.match(salt, tokens, len(tokens) - 1)
        assert self.naive.match(salt, tokens, len(tokens) - 1) == found
        begun = self.radix.begin_page(salt, tokens, found, len(tokens) - 1)
        assert self.naive.begin_page(salt, tokens, found, len(tokens) - 1) == begun
        if begun is not None:
            found.append(begun.page)
        missing = -(-len(tokens) // TWINS_PAGE) - len(found)
        taken = self.radix.take(missing)
        assert self.naive.take(missing) == taken
        if taken is None:
            self.radix.release(found)
            self.naive.release(found)
        else:
            self.held.append((salt, tokens, found + taken, found + taken))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        salt, tokens, ours, naives = data.draw(st.sampled_from(self.held))
        computed = data.draw(st.integers(0, len(tokens)))
        self.radix.insert(salt, tokens[:computed], ours)
        self.naive.insert(salt, tokens[:computed], naives)
        assert ours == naives

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        salt, tokens, ours, naives = data.draw(st.sampled_from(self.held))
        self.radix_pool.share(ours)
        self.naive_pool.share(naives)
        self.held.append((salt, tokens, list(ours), list(naives)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        salt, tokens, ours, naives = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        computed = data.draw(st.integers(0, len(tokens)))
        for cache, pages in ((self.radix, ours), (self.naive, naives)):
            cache.insert(salt, tokens[:computed], pages)
            cache.insert_rest(salt, tokens[:computed], pages)
        self.radix.release(ours)
        self.naive.release(naives)

    @invariant()
    def both_hold_the_same(self) -> None:
        check_tree(self.radix)
        assert cached_pages(self.radix) == len(self.naive.page_of)
        assert self.radix_pool.free == self.naive_pool.free
        assert self.radix_pool.idle <= self.most_idle
        assert self.radix_pool.pinned == self.naive_pool.pinned == len({p for held in self.held for p in held[2]})

    def teardown(self) -> None:
        while self.held:
            self.radix.release(self.held.pop()[2])
        check_tree(self.radix)
        assert self.radix_pool.pinned == 0
        self.radix.clear()
        check_tree(self.radix)
        assert self.radix_pool.free == TOTAL


class SmallTwins(Twins):
    """They keep little for nobody."""

    most_idle = 3


@pytest.mark.hypothesis
@pytest.mark.parametrize("twins", [Twins, SmallTwins])
def test_radix_and_naive_twin_agree_on_every_page(twins: type[Twins]) -> None:
    run_state_machine_as_test(twins, settings=examples(nightly=2_000, gate=40, stateful_step_count=50))


def cache(total: int = 8) -> tuple[RadixCache, PagePool]:
    pool = PagePool(total)
    return RadixCache(pool, PAGE), pool


def put(radix: RadixCache, tokens: list[int], salt: str = "") -> list[int]:
    """Compute and cache a prompt, then let go of it."""
    pages = radix.match(salt, tokens, len(tokens))
    taken = radix.take(-(-len(tokens) // PAGE) - len(pages))
    assert taken is not None
    pages += taken
    radix.insert(salt, tokens, pages)
    radix.release(pages)
    return pages


def test_a_small_cache_forgets_the_oldest_and_leaves_the_rest_of_the_memory_alone() -> None:
    pool = PagePool(8)
    radix = RadixCache(pool, PAGE, most_idle=3)
    put(radix, [1, 2, 3, 4])
    put(radix, [5, 6, 7, 8])
    assert (pool.idle, pool.free) == (3, 5)
    assert len(radix.match("", [1, 2, 3, 4], 4)) == 1
    assert len(radix.match("", [5, 6, 7, 8], 4)) == 2
    assert max(radix.take(5) or ()) == 7, "running sequences have all that is left"


def test_the_least_recently_used_leaf_goes_first() -> None:
    radix, _ = cache(4)
    first, second = put(radix, [1, 2, 3, 4]), put(radix, [5, 6, 7, 8])
    radix.release(radix.match("", [1, 2, 3, 4], 4))  # now [5, 6, 7, 8] is the older one
    assert radix.take(1) == [second[1]]
    assert radix.match("", [5, 6, 7, 8], 4) == second[:1]
    assert radix.match("", [1, 2, 3, 4], 4) == first


def test_what_a_sequence_owns_is_not_evicted() -> None:
    radix, pool = cache(4)
    put(radix, [1, 2, 3, 4])
    held = radix.match("", [1, 2, 3, 4], 4)
    assert radix.take(3) is None
    assert radix.take(2) is not None
    assert pool.owners(held[0]) == pool.owners(held[1]) == 1


def test_choices_that_share_a_duplicate_do_not_hang_their_pages_below_one_they_do_not_own() -> None:
    radix, pool = cache()
    leader, other = radix.take(2), radix.take(1)
    assert leader is not None
    assert other is not None
    follower = list(leader)
    pool.share(follower)
    radix.insert("", [1, 2], other)
    radix.insert("", [1, 2, 3, 4], leader)
    radix.release(leader)
    radix.release(other)
    check_tree(radix)
    radix.insert("", [1, 2, 3, 4], follower)  # the last owner
    check_tree(radix)
    assert follower[0] == other[0]
    radix.release(follower)
    assert pool.idle == 2


def test_a_prompt_that_leaves_the_tree_within_a_page_copies_the_beginning_of_that_page() -> None:
    pool = PagePool(8)
    radix = RadixCache(pool, 4)
    first, second = radix.take(1), radix.take(1)
    assert first is not None
    assert second is not None
    radix.insert("", [1, 2, 3, 4], first)
    radix.insert("", [1, 2, 9, 9], second)
    begun = radix.begin_page("", [1, 2, 3, 7, 8], [], 4)
    assert begun is not None
    assert (begun.source, begun.tokens) == (first[0], 3), "of two pages the one that has more of it"
    assert begun.page not in first + second
    assert pool.owners(begun.page) == pool.owners(first[0]) == 1
    limited = radix.begin_page("", [1, 2, 3, 7], [], 2)
    assert limited is not None
    assert limited.tokens == 2
    assert radix.begin_page("", [7, 1, 2], [], 3) is None
    assert radix.begin_page("other tenant", [1, 2, 3, 4], [], 3) is None


def test_the_last_page_is_found_again_although_it_is_not_full() -> None:
    pool = PagePool(8)
    told: list[tuple[str, list[int]]] = []

    class Heard(BlockEvents):
        def stored(
            self, pages: Sequence[int], tokens: Sequence[tuple[int, ...]], above: tuple[int | None, Namespace]
        ) -> None:
            told.append(("stored", list(pages)))

        def removed(self, page: int) -> None:
            told.append(("removed", [page]))

    radix = RadixCache(pool, 4, Heard())
    pages = radix.take(2)
    assert pages is not None
    radix.insert("", [1, 2, 3, 4, 5, 6], pages)
    radix.insert_rest("", [1, 2, 3, 4, 5, 6], pages)
    radix.release(pages)
    assert radix.match("", [1, 2, 3, 4, 5, 6, 7, 8], 8) == pages[:1]
    begun = radix.begin_page("", [1, 2, 3, 4, 5, 6, 7, 8], pages[:1], 7)
    assert begun is not None
    assert (begun.source, begun.tokens) == (pages[1], 2)
    radix.release([begun.page, pages[0]])
    radix.clear()
    assert pool.free == 8
    assert told == [("stored", pages[:1]), ("removed", pages[:1])], "others hear of whole pages only"


def test_a_page_that_another_choice_may_still_write_into_is_not_cached() -> None:
    radix, pool = cache()
    pages = radix.take(1)
    assert pages is not None
    pool.share(pages)
    radix.insert_rest("", [1], pages)
    assert radix.begin_page("", [1, 2], [], 1) is None


class Counted(int):
    """A token that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_the_work_of_beginning_a_page_hardly_grows_with_those_that_could_be_its_source() -> None:
    page_tokens, most = 16, 4_096
    pool = PagePool(most + 2)
    radix = RadixCache(pool, page_tokens)
    alike = [7] * (page_tokens - 1)
    compared = []
    for number in range(most):
        pages = radix.take(1)
        assert pages is not None
        radix.insert("", [*alike, 2 * number], pages)
        radix.release(pages)
        if number + 1 not in (64, most):
            continue
        Counted.compared = 0
        begun = radix.begin_page("", [*map(Counted, alike), Counted(number | 1), 1], [], page_tokens)
        assert begun is not None
        assert begun.tokens == page_tokens - 1
        radix.insert_rest("", [*map(Counted, alike)], [begun.page])
        assert pool.owners(begun.page) == 1
        radix.release([begun.page])
        assert not pool.is_idle(begun.page), "others begin with the same tokens"
        compared.append(Counted.compared)
    few, many = compared
    # a binary search has one more step for twice as many
    assert few < many <= few + 2 * page_tokens * 6
    check_tree(radix)
