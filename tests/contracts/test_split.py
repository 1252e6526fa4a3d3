"""Sides of a split: sticky, of the size that was asked for, and shuffled anew by every release."""

from __future__ import annotations

from contracts.desired_state import Canary, Model
from contracts.generation import Tier
from contracts.split import Side, pool_of, shares_caches, side_of, unit_of

UNITS = [unit_of("organization", f"session-{number}") for number in range(20_000)]


def model(**canary: object) -> Model:
    return Model("m", Tier.CHAT, "own", 4_096, canary=Canary("new", **canary))  # type: ignore[arg-type]


def of(side: Side, **canary: object) -> set[int]:
    split = model(**canary)
    return {unit for unit in UNITS if side_of(split, unit) is side}


def test_both_arms_have_the_share_and_grow_by_sessions_alone() -> None:
    before: dict[Side, set[int]] = {Side.CANDIDATE: set(), Side.CONTROL: set()}
    for share in (0.0, 0.01, 0.05, 0.25, 0.5):
        for side, fewer in before.items():
            found = of(side, share=share, control=True, release="r")
            assert abs(len(found) / len(UNITS) - share) < 0.01
            assert fewer <= found
            before[side] = found
        assert not before[Side.CANDIDATE] & before[Side.CONTROL]


def test_above_one_half_the_candidate_has_its_share_and_the_control_arm_what_is_left() -> None:
    candidate = of(Side.CANDIDATE, share=0.8, control=True)
    assert abs(len(candidate) / len(UNITS) - 0.8) < 0.01
    assert len(of(Side.CONTROL, share=0.8, control=True)) == len(UNITS) - len(candidate)


def test_without_a_control_arm_all_others_are_the_baseline() -> None:
    assert of(Side.CONTROL, share=0.3) == set()
    assert side_of(Model("m", Tier.CHAT, "own", 4_096), UNITS[0]) is Side.BASELINE


def test_every_release_shuffles_anew() -> None:
    """Not the same customers try every one: of a tenth, a tenth by chance."""
    first, second = (of(Side.CANDIDATE, share=0.1, release=name) for name in ("a", "b"))
    assert len(first & second) / len(first) < 0.15


def test_who_does_not_have_the_salt_cannot_tell_sides() -> None:
    """A guess without it, with everything else that a split is made of, is as good as chance."""
    secret = of(Side.CANDIDATE, share=0.1, release="r", salt="4f1d")
    for guessed in ("", "4f1e", "4f1d0"):
        found = of(Side.CANDIDATE, share=0.1, release="r", salt=guessed)
        assert len(found & secret) / len(found) < 0.15
    assert secret <= of(Side.CANDIDATE, share=0.3, release="r", salt="4f1d"), "sides stay while the share grows"


def test_units_are_told_apart_and_fit_a_bigint() -> None:
    assert len(set(UNITS)) == len(UNITS)
    assert all(0 < unit < 2**63 for unit in UNITS)
    assert unit_of("a", "s") != unit_of("b", "s"), "two organizations' sessions of one name are two"


def test_each_side_has_its_pool() -> None:
    shared, apart = model(control=True), model(control=True, control_pool="fresh")
    assert [pool_of(shared, side) for side in Side] == ["own", "own", "new"]
    assert [pool_of(apart, side) for side in Side] == ["own", "fresh", "new"]
    assert shared.canary is not None
    assert apart.canary is not None
    assert shares_caches(shared, shared.canary)
    assert not shares_caches(apart, apart.canary)
