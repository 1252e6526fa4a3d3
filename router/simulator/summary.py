"""One run in a line: what a policy achieved on a workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from router.simulator.config import SimulatorConfig
from router.simulator.course import Span, course
from router.simulator.outcome import Outcome
from router.simulator.replica import ModelledReplica


class Summary(msgspec.Struct, frozen=True):
    """Over the requests that arrived after the warm-up. Rates are per second and replica."""

    requests: int
    offered: float
    goodput: float
    """Requests that kept both promises."""
    shed: float
    """Share of the requests that were refused."""
    late: float
    """Share that was served, but broke a promise."""
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
    """The whole run over time, warm-up included."""


def summarize(config: SimulatorConfig, outcomes: Sequence[Outcome], replicas: Sequence[ModelledReplica]) -> Summary:
    """outcomes: in any order, all over."""
    times = sorted(outcome.arrival.at_s for outcome in outcomes)
    begin = times[int(len(times) * config.warm_up)]
    counted = [outcome for outcome in outcomes if outcome.arrival.at_s >= begin]
    window = max(times[-1] - begin, 1e-9) * config.replicas
    served = [outcome for outcome in counted if outcome.ended_at is not None]
    kept = sum(outcome.kept(config.promise) for outcome in served)
    prompts = sum(outcome.arrival.prompt_tokens for outcome in served)
    ttft = sorted(outcome.ttft_s * 1e3 for outcome in served if outcome.ttft_s is not None)
    tpot = sorted(outcome.tpot_s * 1e3 for outcome in served if outcome.arrival.output_tokens > 1)
    busy = [replica.engine.busy_s for replica in replicas]
    return Summary(
        requests=len(counted),
        offered=len(counted) / window,
        goodput=kept / window,
        shed=1 - len(served) / len(counted),
        late=(len(served) - kept) / len(counted),
        hit_rate=sum(outcome.cached_tokens for outcome in served) / prompts if prompts else 0.0,
        ttft_p50_ms=quantile(ttft, 0.50),
        ttft_p99_ms=quantile(ttft, 0.99),
        tpot_p50_ms=quantile(tpot, 0.50),
        tpot_p99_ms=quantile(tpot, 0.99),
        imbalance=max(busy) * len(busy) / sum(busy) if sum(busy) else 1.0,
        retractions=sum(outcome.retractions for outcome in counted),
        output_tokens_per_s=sum(outcome.arrival.output_tokens for outcome in served) / window,
        refusals=dict(Counter(outcome.code for outcome in counted if outcome.refused_at is not None)),
        course=course(config, outcomes),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank of a sorted list; 0 for an empty one."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0
