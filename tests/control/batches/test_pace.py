"""The number of lines in flight grows by one a round and is halved by a round's refusals."""

from __future__ import annotations

from control.batches.pace import FIRST, MAX, Pace


def test_it_doubles_until_a_refusal_then_grows_by_one_for_each_round() -> None:
    pace = Pace()
    for _ in range(FIRST):
        pace.served()
    assert pace.limit == 2 * FIRST
    pace.refused(10.0, 0.0)
    for _ in range(FIRST + 1):
        pace.served()
    assert pace.limit == FIRST + 1
    for _ in range(MAX * MAX):
        pace.served()
    assert pace.limit == MAX


def test_refusals_of_one_round_halve_it_once_and_it_never_stops() -> None:
    pace = Pace()
    for _ in range(FIRST):
        pace.refused(10.0, 3.0)
    assert (pace.limit, pace.resume_s) == (FIRST // 2, 13.0)
    pace.refused(11.0, 0.5)
    assert (pace.limit, pace.resume_s) == (FIRST // 4, 13.0)
    for at_s in range(20, 40):
        pace.refused(float(at_s), 0.0)
    assert pace.limit == 1
