"""What may be computed ahead, against a naive sum of what was paid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.usage import Usage
from gateway.serving import warm_up_allowance
from gateway.serving.warm_up_allowance import HALF_LIFE_S, WarmUpAllowance

STEPS = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 100), st.integers(0, 3_000), st.floats(0, 90)))


@given(STEPS)
def test_never_more_is_computed_than_was_paid(steps: list[tuple[int, int, int, float]]) -> None:
    now_s, paid, computed = [0.0], 0.0, 0
    allowance = WarmUpAllowance(lambda: now_s[0])
    for prompt, cached_percent, ahead, pause_s in steps:
        cached = prompt * cached_percent // 100
        allowance.paid("key", Usage(prompt, 5, cached))
        paid += (prompt - cached) + cached / 10
        if allowance.take("key", ahead):
            computed += ahead // 2
            allowance.give_back("key", ahead, Usage(ahead, 1, ahead - ahead // 2))
        assert computed <= paid + 1e-6
        now_s[0] += pause_s


def test_what_was_paid_counts_half_after_a_minute_and_debts_stay() -> None:
    now_s = [0.0]
    allowance = WarmUpAllowance(lambda: now_s[0])
    allowance.paid("key", Usage(1_000))
    now_s[0] = HALF_LIFE_S
    assert not allowance.take("key", 501)
    assert allowance.take("key", 500)
    allowance.give_back("key", 500, Usage(900))
    now_s[0] = 100 * HALF_LIFE_S
    allowance.paid("key", Usage(400))
    assert not allowance.take("key", 1), "the engine had computed more than was thought"
    assert not allowance.take("another", 1)


def test_as_many_keys_are_known_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up_allowance, "MAX_KEYS", 3)
    allowance = WarmUpAllowance()
    for number in range(9):
        allowance.paid(str(number), Usage(10_000))
    assert len(allowance) == 3
    assert allowance.take("8", 1)
    assert not allowance.take("0", 1)
