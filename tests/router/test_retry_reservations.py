"""When a refused client may come back, and what it finds then."""

from __future__ import annotations

import msgspec

from contracts.lease import LeaseRequest
from router.core import retry_reservations
from router.core.retry_reservations import HORIZON_S, PART, VALID_S, RetryReservations
from tests.router.fakes import ask


def prompt(number: int, tokens: int = 100) -> LeaseRequest:
    return msgspec.structs.replace(ask(f"l{number}"), prompt_tokens=tokens, prefix_hashes=number.to_bytes(16, "big"))


def test_times_told_are_as_far_apart_as_the_work_takes_in_the_part_kept() -> None:
    kept = RetryReservations()
    told = [kept.book(prompt(number), 0.3, 2.0, 1.0, 0.0)[0] for number in range(5)]
    assert [round(one, 6) for one in told] == [round(1.0 + 0.3 / (2.0 * PART) * turn, 6) for turn in range(1, 6)]


def test_a_place_is_claimed_once_by_its_prompt_and_not_before_its_time_nor_long_after() -> None:
    kept = RetryReservations()
    told_s, is_kept = kept.book(prompt(1), 0.3, 1.0, 1.0, 0.0)
    assert is_kept
    assert not kept.claim(prompt(1), told_s - 0.01)
    assert not kept.claim(prompt(2), told_s)
    assert kept.claim(prompt(1), told_s + 1.0)
    assert not kept.claim(prompt(1), told_s + 1.0)
    later_s, _ = kept.book(prompt(3), 0.3, 1.0, 1.0, 0.0)
    assert not kept.claim(prompt(3), later_s + VALID_S + 1.0)


def test_beyond_the_horizon_nothing_is_kept_and_shorter_prompts_still_fit() -> None:
    kept = RetryReservations()
    assert kept.book(prompt(1), 100.0, 1.0, 0.0, 0.0) == (HORIZON_S, False)
    assert not kept.claim(prompt(1), HORIZON_S)
    assert kept.book(prompt(2), 0.3, 1.0, 0.0, 0.0)[1]


def test_a_request_booked_again_keeps_its_slot_longest() -> None:
    kept = RetryReservations()
    for number, now_s in ((1, 0.0), (2, 0.0), (1, 2 * VALID_S), (3, 2 * VALID_S)):
        kept.book(prompt(number), 0.001, 100.0, 0.0, now_s)
    assert len(kept) == 2, "the second is older than the first, which was booked again"


def test_places_are_bounded_and_old_ones_forgotten() -> None:
    kept = RetryReservations()
    for number in range(retry_reservations.LIMIT + 100):
        kept.book(prompt(number), 0.001, 100.0, 0.0, 0.0)
    assert len(kept) == retry_reservations.LIMIT
    kept.book(prompt(1_000_000), 0.001, 100.0, 0.0, 10_000.0)
    assert len(kept) == 1
