"""What is reserved of a budget bounds what is settled, at the price of the moment the request came in."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from contracts.dated_request_id import mint
from contracts.errors import BudgetUnavailable
from contracts.usage import Usage
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.metering.pricing.price import Price
from gateway.metering.pricing.prices import PriceBook
from gateway.serving.request_costs import RequestCosts, used

NOW_S = 1_795_000_000.0
RATES = st.integers(0, 10_000_000)


def call(
    prompt_tokens: int, max_tokens: int, choices: int = 1, *, at_s: float = NOW_S, levels: Any = None, priority: int = 0
) -> Any:
    """As much of a Call as prices are asked about."""
    sampling = SimpleNamespace(max_tokens=max_tokens)
    generation = SimpleNamespace(model="m", choices=choices, sampling=sampling, priority=priority)
    prepared = SimpleNamespace(
        generation=generation, prompt_tokens=prompt_tokens // 2, prompt_tokens_bound=prompt_tokens
    )
    return SimpleNamespace(
        request_id=mint(at_s),
        generation=generation,
        prepared=prepared,
        first=None,
        prices={},
        key=SimpleNamespace(levels=levels or Levels()),
    )


def book(*prices: Price) -> RequestCosts:
    known = PriceBook(None)
    known.replace(prices)
    return RequestCosts(known)


@given(
    rates=st.tuples(RATES, RATES, RATES, RATES),
    prompt=st.integers(1, 100_000),
    cached=st.floats(0, 1),
    written=st.floats(0, 1),
    output=st.integers(0, 4_000),
    choices=st.integers(1, 8),
    offline=st.booleans(),
)
def test_nothing_costs_more_than_was_reserved(
    rates: tuple[int, int, int, int],
    prompt: int,
    cached: float,
    written: float,
    output: int,
    choices: int,
    offline: bool,
) -> None:
    prices, asked = book(Price(1, "m", 0.0, None, *rates, 50)), call(prompt, 500, choices, priority=-10 * offline)
    usage = Usage(
        prompt,
        min(output, 500 * choices),
        cached_tokens=int(prompt * cached),
        cache_write_tokens=int(prompt * written),
    )
    most = prices.most(asked)
    spent = used(usage, asked.prices["m"])
    assert 0 <= spent.micro <= most.micro
    assert asked.prices["m"].percent == (50 if offline else 100)
    assert (most.input_tokens, most.output_tokens) == (prompt // 2, 500 * choices)
    assert (spent.input_tokens, spent.output_tokens) == (usage.prompt_tokens, usage.completion_tokens)


def test_the_price_is_that_of_the_arrival() -> None:
    prices = book(Price(1, "m", 0.0, NOW_S, 1_000_000, 0, 0, 0), Price(2, "m", NOW_S, None, 9_000_000, 0, 0, 0))
    before, after = call(10, 1, at_s=NOW_S - 0.001), call(10, 1, at_s=NOW_S)
    assert [prices.most(asked).micro for asked in (before, after)] == [10, 90]
    assert [asked.prices["m"].version for asked in (before, after)] == [1, 2]


def test_a_request_keeps_the_price_it_was_reserved_with() -> None:
    known = PriceBook(None)
    known.replace([])
    costs = RequestCosts(known)
    free = call(10, 1)
    assert costs.most(free).micro == 0
    known.replace([Price(1, "m", 0.0, None, 1_000_000, 0, 0, 0)])
    assert used(Usage(10, 1), free.prices["m"]).micro == 0
    assert free.prices["m"].version == 0
    assert costs.most(call(10, 1)).micro == 10


def test_a_key_with_a_budget_waits_for_the_prices() -> None:
    prices = RequestCosts(PriceBook(None))  # nothing was read yet
    budget = Levels.of("o", [Rule(Level.KEY, "k", None, Limits(money_micro_per_month=5))])
    unlimited = call(10, 1, at_s=time.time())
    assert prices.most(unlimited).micro == 0
    assert unlimited.prices == {}  # the ledger finds the price
    with pytest.raises(BudgetUnavailable):
        prices.most(call(10, 1, levels=budget))
