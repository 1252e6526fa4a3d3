"""A run over time: the same figures as its summary, for stretches of equal length."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from contracts.nearest_rank import nearest_rank
from tools.simulator.config import SimulatorConfig
from tools.simulator.outcome import Outcome

SPANS = 24


class Span(msgspec.Struct, frozen=True):
    """The requests that arrived in one stretch; its figures mean the same as a summary's."""

    middle_s: float
    """Middle of the stretch, from the first arrival."""
    offered: float
    goodput: float
    shed: float
    hit_rate: float
    ttft_p99_ms: float


def figures(some: Sequence[Outcome], window: float) -> dict[str, float]:
    """Figures that a stretch and a whole run share. window: replica seconds in which the requests arrived."""
    served = [outcome for outcome in some if outcome.ended_at is not None]
    prompts = sum(outcome.arrival.prompt_tokens for outcome in served)
    return {
        "offered": len(some) / window,
        "goodput": sum(outcome.kept for outcome in served) / window,
        "shed": 1 - len(served) / len(some) if some else 0.0,
        "hit_rate": sum(outcome.cached_tokens for outcome in served) / prompts if prompts else 0.0,
        "ttft_p99_ms": percentile(ttft_ms(served), 99),
    }


def ttft_ms(served: Sequence[Outcome]) -> list[float]:
    """Times to the first token, rising."""
    return sorted(outcome.ttft_s * 1e3 for outcome in served if outcome.ttft_s is not None)


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Percentile of rising values by nearest rank; 0 for an empty list, so that a run without responses has figures
    too."""
    return nearest_rank(ordered, percent) or 0.0


def course(config: SimulatorConfig, outcomes: Sequence[Outcome]) -> tuple[Span, ...]:
    """Spans from the first to the last arrival, including the warm-up. outcomes: in any order, all ended."""
    end_s = max((outcome.arrival.at_s for outcome in outcomes), default=0.0)
    length_s = max(end_s / SPANS, 1e-9)
    stretches: list[list[Outcome]] = [[] for _ in range(SPANS)]
    for outcome in outcomes:
        stretches[min(int(outcome.arrival.at_s / length_s), SPANS - 1)].append(outcome)
    return tuple(
        Span(middle_s=(number + 0.5) * length_s, **figures(some, length_s * config.replicas))
        for number, some in enumerate(stretches)
    )
