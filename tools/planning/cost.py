"""The cost of a fleet per hour, per month and per million tokens of each kind."""

from __future__ import annotations

import msgspec

from tools.planning.cached_price import CachedPrice, cached_price
from tools.planning.operating_point import OperatingPoint
from tools.planning.prices import HOURS_PER_MONTH
from tools.planning.workload import Workload


class Cost(msgspec.Struct, frozen=True):
    """US dollars. A million tokens of a kind cost the part of the bill that is spent on them. Every price includes idle
    hours."""

    per_hour: float
    per_month: float
    per_million_tokens: float
    """Prompts, including cached tokens, and answers together."""
    per_million_new_prompt_tokens: float
    per_million_output_tokens: float
    cached: CachedPrice


def cost(cards: int, card_per_hour: float, workload: Workload, point: OperatingPoint) -> Cost:
    """cards: GPUs of the whole fleet, which is sized for the peak and paid for all month."""
    per_hour = cards * card_per_hour
    millions_per_hour = workload.requests_per_s * workload.average_share * 3_600 / 1e6
    prompts_s, answers_s = point.interference_s, workload.output_tokens * point.step_s / point.batch
    prompts = prompts_s / (prompts_s + answers_s)
    new_prompt = per_hour * prompts / (millions_per_hour * workload.new_tokens)
    return Cost(
        per_hour=per_hour,
        per_month=per_hour * HOURS_PER_MONTH,
        per_million_tokens=per_hour / (millions_per_hour * workload.tokens),
        per_million_new_prompt_tokens=new_prompt,
        per_million_output_tokens=per_hour * (1 - prompts) / (millions_per_hour * workload.output_tokens),
        cached=cached_price(new_prompt),
    )
