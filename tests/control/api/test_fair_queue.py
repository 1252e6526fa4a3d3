"""Groups take turns, members of a group do, and no item is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from control.api.fair_queue import FairQueue, QueueKey

KEYS = st.builds(QueueKey, st.sampled_from("abc"), st.sampled_from("xyz"))


def test_lines_take_turns_and_so_do_the_members_of_each() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.add(QueueKey("strangers", "home"), f"home {number}")
    queue.add(QueueKey("strangers", "office"), "office 0")
    queue.add(QueueKey("acme"), "acme 0")
    taken = [item for _, item in iter(queue.take, None)]
    assert taken == ["home 0", "acme 0", "office 0", "home 1", "home 2"]


def test_of_a_lines_members_the_one_that_has_had_least_is_next() -> None:
    queue: FairQueue[str] = FairQueue()
    had = {"a": 2, "b": 1, "c": 1}
    for number in range(2):
        for member in "abc":
            queue.add(QueueKey("strangers", member), f"{member}{number}")
    taken = []
    while (following := queue.take(had=lambda key: had[key.member])) is not None:
        key, item = following
        had[key.member] += 1
        taken.append(item)
    assert taken == ["b0", "c0", "a0", "b1", "c1", "a1"]


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=60), st.sets(st.sampled_from("abc")))
def test_each_item_is_taken_or_removed_once_and_lines_that_may_not_keep_theirs(
    steps: list[tuple[QueueKey, bool]], barred: set[str]
) -> None:
    queue: FairQueue[int] = FairQueue()
    keys: dict[int, QueueKey] = {}
    for number, (key, stays) in enumerate(steps):
        queue.add(key, number)
        if stays:
            keys[number] = key
        else:
            assert queue.remove(key, number)
            assert not queue.remove(key, number)
    assert len(queue) == len(keys)
    for group in "abc":
        own = [key for key in keys.values() if key.group == group]
        assert queue.size_of_group(group) == len(own)
        largest = queue.newest_of_largest(group)
        assert (largest is None) == (not own)
        if largest is not None:
            key, newest = largest
            assert newest == max(number for number, each in keys.items() if each == key)
            assert queue.size_of(key) == max(map(own.count, own))
    taken = [(key, item) for key, item in iter(lambda: queue.take(lambda group: group not in barred), None)]
    assert {item: key for key, item in taken} == {
        number: key for number, key in keys.items() if key.group not in barred
    }
    for key in set(keys.values()):  # oldest first in each key
        of_place = [item for each, item in taken if each == key]
        assert of_place == sorted(of_place)
    assert len(queue) == len(keys) - len(taken)
    groups = [key.group for key, _ in taken]
    for position, group in enumerate(groups):  # between two of a group every other that still waits has one
        later = [key.group for key, _ in taken[position + 1 :]]
        until_next = later[: later.index(group)] if group in later else later
        if group in later:
            assert set(until_next) >= {each for each in later if each != group}
