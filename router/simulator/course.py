"""How a run went over time: the same figures as its summary, for stretches of equal length."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from router.simulator.config import SimulatorConfig
from router.simulator.outcome import Outcome

SPANS = 24


class Span(msgspec.Struct, frozen=True):
    """The requests that arrived in one stretch. Rates are per second and replica."""

    middle_s: float
    """Of the stretch, from the first arrival."""
    offered: float
    goodput: float
    shed: float
    hit_rate: float
    ttft_p99_ms: float


def course(config: SimulatorConfig, outcomes: Sequence[Outcome]) -> tuple[Span, ...]:
    """From first to last arrival, the warm-up included. outcomes: in any order, all over."""
    end_s = max((outcome.arrival.at_s for outcome in outcomes), default=0.0)
    length_s = max(end_s / SPANS, 1e-9)
    stretches: list[list[Outcome]] = [[] for _ in range(SPANS)]
    for outcome in outcomes:
        stretches[min(int(outcome.arrival.at_s / length_s), SPANS - 1)].append(outcome)
    return tuple(_span(config, some, number, length_s) for number, some in enumerate(stretches))


def _span(config: SimulatorConfig, some: Sequence[Outcome], number: int, length_s: float) -> Span:
    window = length_s * config.replicas
    served = [outcome for outcome in some if outcome.ended_at is not None]
    prompts = sum(outcome.arrival.prompt_tokens for outcome in served)
    ttft_ms = sorted(outcome.ttft_s * 1e3 for outcome in served if outcome.ttft_s is not None)
    return Span(
        middle_s=(number + 0.5) * length_s,
        offered=len(some) / window,
        goodput=sum(outcome.kept(config.promise) for outcome in served) / window,
        shed=1 - len(served) / len(some) if some else 0.0,
        hit_rate=sum(outcome.cached_tokens for outcome in served) / prompts if prompts else 0.0,
        ttft_p99_ms=ttft_ms[min(int(len(ttft_ms) * 0.99), len(ttft_ms) - 1)] if ttft_ms else 0.0,
    )
