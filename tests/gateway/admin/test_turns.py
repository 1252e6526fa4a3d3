"""Who is next: lines in turn, members of a line in turn, and nobody lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.turns import Place, Turns

PLACES = st.builds(Place, st.sampled_from("abc"), st.sampled_from("xyz"))


def test_lines_take_turns_and_so_do_the_members_of_each() -> None:
    turns: Turns[str] = Turns()
    for number in range(3):
        turns.add(Place("strangers", "home"), f"home {number}")
    turns.add(Place("strangers", "office"), "office 0")
    turns.add(Place("acme"), "acme 0")
    taken = [item for _, item in iter(turns.take, None)]
    assert taken == ["home 0", "acme 0", "office 0", "home 1", "home 2"]


def test_of_a_lines_members_the_one_that_has_had_least_is_next() -> None:
    turns: Turns[str] = Turns()
    had = {"a": 2, "b": 1, "c": 1}
    for number in range(2):
        for member in "abc":
            turns.add(Place("strangers", member), f"{member}{number}")
    taken = []
    while (following := turns.take(had=lambda place: had[place.member])) is not None:
        place, item = following
        had[place.member] += 1
        taken.append(item)
    assert taken == ["b0", "c0", "a0", "b1", "c1", "a1"]


@given(st.lists(st.tuples(PLACES, st.booleans()), max_size=60), st.sets(st.sampled_from("abc")))
def test_each_item_is_taken_or_removed_once_and_lines_that_may_not_keep_theirs(
    steps: list[tuple[Place, bool]], barred: set[str]
) -> None:
    turns: Turns[int] = Turns()
    places: dict[int, Place] = {}
    for number, (place, stays) in enumerate(steps):
        turns.add(place, number)
        if stays:
            places[number] = place
        else:
            assert turns.remove(place, number)
            assert not turns.remove(place, number)
    assert len(turns) == len(places)
    for line in "abc":
        own = [place for place in places.values() if place.line == line]
        assert turns.in_line(line) == len(own)
        longest = turns.last_of_longest(line)
        assert (longest is None) == (not own)
        if longest is not None:
            place, newest = longest
            assert newest == max(number for number, each in places.items() if each == place)
            assert turns.waiting(place) == max(map(own.count, own))
    taken = [(place, item) for place, item in iter(lambda: turns.take(lambda line: line not in barred), None)]
    assert {item: place for place, item in taken} == {
        number: place for number, place in places.items() if place.line not in barred
    }
    for place in set(places.values()):  # oldest first in each place
        of_place = [item for each, item in taken if each == place]
        assert of_place == sorted(of_place)
    assert len(turns) == len(places) - len(taken)
    lines = [place.line for place, _ in taken]
    for position, line in enumerate(lines):  # between two of a line every other that still waits has one
        later = [place.line for place, _ in taken[position + 1 :]]
        until_next = later[: later.index(line)] if line in later else later
        if line in later:
            assert set(until_next) >= {each for each in later if each != line}
