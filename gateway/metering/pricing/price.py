"""Defines the price of a model's tokens during one period, in whole micro-units of the deployment's currency.

All numbers are integers. An amount is rounded once, over all of an attempt's tokens: to the nearest micro-unit, halves
up. The ledger's INSERT computes the same in SQL (`ledger/amounts.py`); a test compares the two.
"""

from __future__ import annotations

import msgspec

from contracts.usage import Usage

PER_TOKENS = 1_000_000
"""Number of tokens to which a price applies."""
WHOLE = 100
"""The percentage of a price that a request costs, unless its class has another one."""
MAX_MICRO = 1_000_000_000_000
"""Highest price that the table accepts: a million units of currency for a million tokens."""


class Price(msgspec.Struct, frozen=True):
    """One row of `gateway.prices`. Every rate is in micro-units for a million tokens."""

    version: int
    """Unique over all models; the ledger's rows carry it."""
    model: str
    valid_from: float
    """Epoch seconds. The price applies to requests that arrived at this moment or later."""
    valid_until: float | None
    """Epoch seconds. The price applies to requests that arrived earlier; None until a later price ends it."""
    input_micro: int
    cached_input_micro: int
    """Rate of prompt tokens read from the prefix cache, usually a tenth of `input_micro`."""
    cache_write_micro: int
    """Rate of prompt tokens that the engine reports as written to a billed cache."""
    output_micro: int
    """Rate of output tokens, including reasoning tokens. Draft tokens cost nothing."""
    offline_percent: int = WHOLE
    """Percentage of these rates that a request in the class `offline` costs."""
    percent: int = WHOLE
    """Percentage of these rates that the present request costs. See `offline`."""

    def offline(self) -> Price:
        """The same price for a request in the class `offline`."""
        return msgspec.structs.replace(self, percent=self.offline_percent)

    def amount_micro(self, usage: Usage) -> int:
        """Cost of these tokens. Contradictory counts are cut: cached tokens never exceed prompt tokens."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        written = min(usage.cache_write_tokens, usage.prompt_tokens - cached)
        exact = (
            (usage.prompt_tokens - cached - written) * self.input_micro
            + cached * self.cached_input_micro
            + written * self.cache_write_micro
            + usage.completion_tokens * self.output_micro
        ) * self.percent
        return (exact + PER_TOKENS * WHOLE // 2) // (PER_TOKENS * WHOLE)

    def bound_micro(self, prompt_tokens: int, max_output_tokens: int) -> int:
        """Highest cost of a request within these counts, however its prompt is cached, rounded up."""
        highest = max(self.input_micro, self.cached_input_micro, self.cache_write_micro)
        exact = (prompt_tokens * highest + max_output_tokens * self.output_micro) * self.percent
        return -(-exact // (PER_TOKENS * WHOLE))


NO_PRICE = Price(0, "", 0.0, None, 0, 0, 0, 0)
"""The price of a model without one. No row of the table has its version."""
