"""The cache model against a naive twin: a tree of nodes with times, searched whenever a leaf must go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.performance.block_cache import BlockCache
from tests.examples import examples


class NaiveTree:
    """Nodes by path. A path is let go at one moment; among leaves let go together the deepest goes first."""

    def __init__(self) -> None:
        self.users: dict[tuple[int, ...], int] = {}
        self.let_go: dict[tuple[int, ...], int] = {}
        self.clock = 0

    def match(self, path: tuple[int, ...]) -> int:
        return next((n for n in range(len(path)) if path[: n + 1] not in self.users), len(path))

    def lock(self, path: tuple[int, ...]) -> None:
        for n in range(1, len(path) + 1):
            self.users[path[:n]] = self.users.get(path[:n], 0) + 1

    def unlock(self, path: tuple[int, ...]) -> None:
        self.clock += 1
        for n in range(1, len(path) + 1):
            self.users[path[:n]] -= 1
            self.let_go[path[:n]] = self.clock

    def evict(self) -> bool:
        leaves = [
            node
            for node, users in self.users.items()
            if users == 0 and not any(other[: len(node)] == node and other != node for other in self.users)
        ]
        if not leaves:
            return False
        del self.users[min(leaves, key=lambda node: (self.let_go[node], -len(node)))]
        return True


def keys(path: tuple[int, ...]) -> list[bytes]:
    return [bytes(path[: n + 1]) for n in range(len(path))]


paths = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)
actions = st.one_of(st.tuples(st.just("use"), paths), st.tuples(st.just("free"), st.integers(0, 9)), st.just("evict"))


@examples(nightly=1_000, gate=60)
@given(st.lists(actions, max_size=60))
def test_it_holds_and_forgets_what_the_naive_tree_does(steps: list[object]) -> None:
    cache, naive, used = BlockCache(), NaiveTree(), []
    for step in steps:
        if isinstance(step, tuple) and step[0] == "use":
            path = step[1]
            assert cache.match(keys(path)) == naive.match(path)
            cache.lock(keys(path))
            naive.lock(path)
            used.append(path)
        elif isinstance(step, tuple) and used:
            path = used.pop(step[1] % len(used))
            cache.unlock(keys(path))
            naive.unlock(path)
        elif step == "evict":
            assert (cache.evict(1) == 1) == naive.evict()
        assert len(cache) == len(naive.users)
        assert cache.locked == sum(users > 0 for users in naive.users.values())
        assert all(cache.match([bytes(node)]) for node in naive.users)


def test_listeners_hear_of_every_block_stored_and_removed() -> None:
    heard: list[tuple[bool, object]] = []
    cache = BlockCache(lambda stored, block: heard.append((stored, block)))
    cache.lock([b"a", b"b"])
    cache.lock([b"a"])
    cache.unlock([b"a"])
    cache.unlock([b"a", b"b"])
    cache.clear()
    assert heard == [(True, b"a"), (True, b"b"), (False, b"b"), (False, b"a")]
