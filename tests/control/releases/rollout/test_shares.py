"""No organization has more than its share, against rules that are plain enough to be read."""

from __future__ import annotations

import random

import pytest

from control.releases.rollout.shares import ALONE, Sessions, ceiling, chosen, parts_of, places, share_of

SEEDS = range(200)
SHARES = (0.5, 0.6, 0.75, 0.9)


def plain_places(new: dict[str, int], taken: dict[str, int], share: float) -> dict[str, int]:
    """Take everything; then put sessions of whoever has too much back, one by one."""
    found = dict(new)
    while True:
        have = {name: taken.get(name, 0) + found.get(name, 0) for name in taken.keys() | found.keys()}
        over = [
            name
            for name, count in have.items()
            if count > ALONE and count > share * sum(have.values()) + 1e-6 and found.get(name)
        ]
        if not over:
            return found
        found[over[0]] -= 1


@pytest.mark.parametrize("share", SHARES)
def test_a_look_takes_what_is_within_the_share_and_nothing_less(share: float) -> None:
    for seed in SEEDS:
        choose = random.Random(seed)
        names = [f"o{number}" for number in range(choose.randint(1, 4))]
        new = {name: choose.choice((0, 1, 30, 400)) + choose.randint(0, 20) for name in names}
        taken = {name: choose.choice((0, 50, 150)) for name in names}
        assert places(new, taken, share) == plain_places(new, taken, share), (new, taken)


def test_nobody_ever_has_more_than_the_share_however_the_looks_fall() -> None:
    for seed in SEEDS:
        choose = random.Random(seed)
        sessions, unit = Sessions(), 0
        for _ in range(20):
            units = {}
            for name, most in (("flood", 200), ("b", 20), ("c", 5)):
                for _ in range(choose.randint(0, most)):
                    unit += 1
                    units[unit] = name
            kept, new = chosen(units, sessions, 0.5, b"secret")
            assert sum(new.values()) == len(kept)
            by = {name: sessions.by_organization.get(name, 0) + new.get(name, 0) for name in ("flood", "b", "c")}
            sessions = Sessions(sessions.units | kept, by)
            assert by["flood"] <= max(ALONE, by["b"] + by["c"])


def test_whoever_is_alone_has_everything() -> None:
    assert share_of([30_000], 0.5, 1_000) == 1.0
    assert share_of([], 0.5, 1_000) == 1.0
    assert ceiling([30_000], 1.0, 20_000) == 20_000
    assert places({"a": 5_000}, {}, 1.0) == {"a": 5_000}


def test_those_who_send_little_hold_nobody_up() -> None:
    """With 20 requests of others the baseline still has its thousand, and the release as many parts."""
    held_to = share_of([50_000, 20], 0.5, 1_000)
    assert held_to == pytest.approx(0.98)
    assert ceiling([50_000, 20], held_to, 20_000) == 980
    assert places({"a": 5_000, "b": 20}, {}, held_to) == {"a": 980, "b": 20}


def test_a_flood_before_the_release_changes_no_share() -> None:
    for others in (0, 1, 300, 5_000):
        held_to = {share_of([count, others], 0.5, 1_000) for count in (5_000, 10**6, 10**9)}
        assert len(held_to) == 1


def plain_ceiling(counts: list[int], share: float, most: int) -> int:
    """The largest that keeps both promises, tried one by one."""
    for tried in range(max(counts), -1, -1):
        kept = [min(count, tried) for count in counts]
        if sum(kept) <= most and (share == 1.0 or max(kept) <= share * sum(kept) + 1e-6):
            return tried
    raise AssertionError


@pytest.mark.parametrize("share", [*SHARES, 1.0])
def test_of_the_baseline_as_many_are_taken_as_the_promises_allow(share: float) -> None:
    for seed in SEEDS:
        choose = random.Random(seed)
        counts = [choose.randint(1, 400) for _ in range(choose.randint(2, 6))]
        most = choose.randint(10, 1_500)
        assert ceiling(counts, share, most) == plain_ceiling(counts, share, most), (counts, most)


def test_of_too_much_traffic_a_flood_takes_no_others_place() -> None:
    assert parts_of({"a": 900, "b": 100}, 1_000, 0.5) == {"a": 1.0, "b": 1.0}
    assert parts_of({"a": 9_900, "b": 100}, 1_000, 0.5) == {"a": 900 / 9_900, "b": 1.0}
    assert parts_of({"a": 10_000, "b": 2_000}, 1_000, 0.5) == {"a": 0.05, "b": 0.25}
    assert parts_of({"a": 3_000, "b": 2_000}, 1_000, 1.0) == {"a": 0.2, "b": 0.2}
    assert parts_of({}, 1_000, 0.5) == {}


def test_neither_time_nor_name_brings_a_session_in() -> None:
    """The order is the key's: others are chosen under another, and the same in any order of arrival."""
    units = dict.fromkeys(range(1, 1_001), "a") | dict.fromkeys(range(2_001, 2_201), "b")
    kept, new = chosen(units, Sessions(), 0.5, b"one")
    assert new == {"a": 200, "b": 200}
    assert chosen(dict(reversed(units.items())), Sessions(), 0.5, b"one")[0] == kept
    assert chosen(units, Sessions(), 0.5, b"other")[0] != kept
    assert {unit for unit in kept if unit <= 1000} != set(range(1, 201))


def test_a_session_that_was_taken_stays() -> None:
    sessions = Sessions(frozenset(range(1, 301)), {"a": 300})
    units = dict.fromkeys(range(1, 11), "a") | {2_000: "a", 3_000: "b"}
    assert chosen(units, sessions, 0.5, b"key") == (frozenset({*range(1, 11), 3_000}), {"b": 1})
