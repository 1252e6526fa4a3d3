"""Computes a request's highest possible and actual cost, in tokens for rates and in money for budgets."""

from __future__ import annotations

import time

from contracts.dated_request_id import arrived_at_s
from contracts.errors import BudgetUnavailable
from contracts.usage import Usage
from gateway.limits.cost import Cost
from gateway.metering.pricing.price import Price
from gateway.metering.pricing.prices import PriceBook
from gateway.serving.request import InferenceRequest
from gateway.wire.prepared import Prepared


class RequestCosts:
    """Computes costs with the price that was known when the request arrived; the ledger bills by the same price."""

    def __init__(self, prices: PriceBook) -> None:
        self._prices = prices

    def most(self, request: InferenceRequest) -> Cost:
        """The upper bound to reserve: the prompt and every choice's output limit, whichever model serves the request.

        Raises BudgetUnavailable for a key with a budget until prices are known.
        """
        bound = self._most(request, request.prepared)
        if request.first is None:
            return bound
        first = self._most(request, request.first.prepared)
        return Cost(
            max(bound.input_tokens, first.input_tokens),
            max(bound.output_tokens, first.output_tokens),
            max(bound.micro, first.micro),
        )

    def _most(self, request: InferenceRequest, prepared: Prepared) -> Cost:
        generation = prepared.generation
        output_tokens = generation.choices * generation.sampling.max_tokens
        if not self._prices.loaded:
            if request.key.levels.has_money:
                raise BudgetUnavailable("The gateway has not read prices yet. Try again shortly.", retry_after_s=1.0)
            return Cost(prepared.prompt_tokens, output_tokens)
        price = self._prices.price(generation.model, arrived_at_s(request.request_id) or time.time())
        if generation.priority < 0:
            price = price.offline()
        request.prices[generation.model] = price
        return Cost(
            prepared.prompt_tokens, output_tokens, price.bound_micro(prepared.prompt_tokens_bound, output_tokens)
        )


def used(usage: Usage, price: Price | None) -> Cost:
    """The cost of an attempt that an engine accepted: tokens whether billed or not, money as in the ledger. price: the
    attempt's price; None if it is not billed, or no price is known yet and no budget counts it."""
    return Cost(usage.prompt_tokens, usage.completion_tokens, 0 if price is None else price.amount_micro(usage))
