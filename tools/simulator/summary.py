"""The figures of one run: a policy's results on a workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from tools.simulator.config import SimulatorConfig
from tools.simulator.course import Span, course, figures, percentile, ttft_ms
from tools.simulator.outcome import Outcome, promise_to
from tools.simulator.replica import ModelledReplica


class LengthClass(msgspec.Struct, frozen=True):
    """The requests with the same promise, whose prompts have at most `prompt_tokens` and more than those of the class
    before."""

    prompt_tokens: int
    requests: int
    kept: int
    """Requests of the class that kept both promises."""


class Summary(msgspec.Struct, frozen=True):
    """Figures of the requests that arrived after the warm-up. Rates are per second and replica."""

    requests: int
    offered: float
    goodput: float
    """Requests that kept both promises."""
    kept_prompt_tokens: float
    """Share of all prompt tokens in these requests: one long prompt weighs as much as many short ones."""
    kept_output_tokens: float
    """Share of all output tokens in these requests."""
    length_classes: tuple[LengthClass, ...]
    """By length, including empty classes."""
    shed: float
    """Share of the requests that were refused."""
    late: float
    """Share of the requests that were served but broke a promise."""
    hit_rate: float
    """Cached share of the prompt tokens of the requests that were served."""
    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float
    tpot_p99_ms: float
    imbalance: float
    """The busiest replica's computing time over the mean: 1 is even."""
    retractions: int
    output_tokens_per_s: float
    refusals: dict[str, int]
    course: tuple[Span, ...] = ()
    """The whole run over time, including the warm-up."""


def summarize(config: SimulatorConfig, outcomes: Sequence[Outcome], replicas: Sequence[ModelledReplica]) -> Summary:
    """outcomes: in any order, all ended."""
    times = sorted(outcome.arrival.at_s for outcome in outcomes)
    begin = times[int(len(times) * config.warm_up)]
    counted = [outcome for outcome in outcomes if outcome.arrival.at_s >= begin]
    window = max(times[-1] - begin, 1e-9) * config.replicas
    served = [outcome for outcome in counted if outcome.ended_at is not None]
    kept = [outcome for outcome in served if outcome.kept]
    tpot = sorted(outcome.tpot_s * 1e3 for outcome in served if outcome.arrival.output_tokens > 1)
    busy = [replica.engine.busy_s for replica in replicas]
    return Summary(
        **figures(counted, window),
        requests=len(counted),
        kept_prompt_tokens=_prompt_tokens(kept) / max(_prompt_tokens(counted), 1),
        kept_output_tokens=_output_tokens(kept) / max(_output_tokens(counted), 1),
        length_classes=_length_classes(config, counted, kept),
        late=(len(served) - len(kept)) / len(counted),
        ttft_p50_ms=percentile(ttft_ms(served), 50),
        tpot_p50_ms=percentile(tpot, 50),
        tpot_p99_ms=percentile(tpot, 99),
        imbalance=max(busy) * len(busy) / sum(busy) if sum(busy) else 1.0,
        retractions=sum(outcome.retractions for outcome in counted),
        output_tokens_per_s=_output_tokens(served) / window,
        refusals=dict(Counter(outcome.code for outcome in counted if outcome.refused_at is not None)),
        course=course(config, outcomes),
    )


def _prompt_tokens(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.arrival.prompt_tokens for outcome in outcomes)


def _output_tokens(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.arrival.output_tokens for outcome in outcomes)


def _length_classes(
    config: SimulatorConfig, counted: Sequence[Outcome], kept: Sequence[Outcome]
) -> tuple[LengthClass, ...]:
    total, met = (Counter(promise_to(one.arrival, config.promises) for one in some) for some in (counted, kept))
    return tuple(LengthClass(each.prompt_tokens, total[each], met[each]) for each in config.promises)
