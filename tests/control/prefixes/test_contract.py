"""When a share has dropped, when it is over, and where most was lost: decided from sums alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.prefixes.contract import OpenDrop, Place, Standing, Totals, culprit, standing, usual_share
from control.prefixes.upkeep_config import PrefixUpkeepConfig

CONFIG = PrefixUpkeepConfig()


def totals(share: float, requests: int = 100) -> Totals:
    return Totals(requests, 1_000, round(1_000 * share))


def place(cause: str, template: str = "t") -> Place:
    return Place(template, "m", cause, "system")


def test_what_is_usual_is_the_median_of_hours_with_enough_requests() -> None:
    hours = [totals(0.8), totals(0.6), totals(0.7), totals(0.0, requests=49)]
    assert usual_share(hours, 50) == 0.7
    assert usual_share(hours[2:], 50) is None


@pytest.mark.parametrize(
    ("now", "usual", "drop", "stands"),
    [
        (totals(0.4), 0.8, None, Standing.DROPPED),
        (totals(0.41), 0.8, None, Standing.USUAL),
        (totals(0.0, requests=49), 0.8, None, Standing.UNKNOWN),
        (totals(0.0), None, None, Standing.UNKNOWN),
        (totals(0.0), 0.0, None, Standing.UNKNOWN),
        (totals(0.59), 0.8, OpenDrop(0.8, 60), Standing.STILL_DROPPED),
        (totals(0.61), 0.8, OpenDrop(0.8, 60), Standing.RECOVERED),
        (totals(0.61), 0.3, OpenDrop(0.8, 60), Standing.RECOVERED),
        (totals(0.8, requests=3), 0.8, OpenDrop(0.8, 60), Standing.STILL_DROPPED),
        (totals(0.1), 0.1, OpenDrop(0.8, 24 * 3_600), Standing.RECOVERED),
    ],
)
def test_a_share_drops_by_half_once_and_recovers(
    now: Totals, usual: float | None, drop: OpenDrop | None, stands: Standing
) -> None:
    assert standing(now, usual, drop, CONFIG) is stands


SUMS = st.dictionaries(
    st.builds(place, st.sampled_from(["date", "first", "new_text"]), st.sampled_from("tu")),
    st.integers(0, 100).flatmap(lambda tokens: st.builds(Totals, st.just(1), st.just(tokens), st.integers(0, tokens))),
)


@given(SUMS, SUMS)
def test_the_culprit_against_a_plain_recount(before: dict[Place, Totals], after: dict[Place, Totals]) -> None:
    def lost(sums: dict[Place, Totals], where: Place) -> float:
        tokens = sum(each.prompt_tokens for each in sums.values())
        each = sums.get(where)
        return (each.prompt_tokens - each.reusable_tokens) / tokens if each and tokens else 0.0

    found = culprit(before, after)
    grown = {where: lost(after, where) - lost(before, where) for where in after}
    if found is None:
        assert all(each <= 0 for each in grown.values())
    else:
        assert grown[found] == max(grown.values()) > 0
