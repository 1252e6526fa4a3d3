"""Reports are about requests that can be there: of ids that lie ahead of the clock, or behind retention, are none."""

from __future__ import annotations

import pytest

from contracts.dated_request_id import DAY_S, mint
from contracts.errors import InvalidField
from gateway.autocomplete.report_window import CLOCKS_APART_S, ReportWindow

NOW_S = 1_800_000_000.0
WINDOW = ReportWindow(3, lambda: NOW_S)


@pytest.mark.parametrize("ago_s", [0, 3 * DAY_S, 3 * DAY_S + CLOCKS_APART_S, -CLOCKS_APART_S])
def test_what_is_kept_may_be_reported_about(ago_s: float) -> None:
    WINDOW.require(mint(NOW_S - ago_s))


@pytest.mark.parametrize(
    ("ago_s", "said"),
    [
        (-CLOCKS_APART_S - 1, "an hour from now"),
        (-50 * 365 * DAY_S, "2077"),
        (3 * DAY_S + CLOCKS_APART_S + 1, "3 days"),
    ],
)
def test_what_is_not_is_refused(ago_s: float, said: str) -> None:
    with pytest.raises(InvalidField, match=said) as refused:
        WINDOW.require(mint(NOW_S - ago_s))
    assert refused.value.param == "completion_id"
