"""Computes the figures of a run, with the names of AIPerf's summary where it has them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from contracts.nearest_rank import nearest_rank
from router.config import SloClass
from tools.bench.answer import Answer


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One figure; a single number sets only `avg`. Percentiles are by nearest rank."""

    unit: str
    avg: float
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of the requests sent after the warm-up; None if there is no value."""

    time_to_first_token: Figure | None
    inter_token_latency: Figure | None
    """TPOT: a response's mean time per token after the first."""
    inter_chunk_latency: Figure | None
    """ITL: every gap between two events with text."""
    request_latency: Figure | None
    input_sequence_length: Figure | None
    output_sequence_length: Figure | None
    request_count: Figure
    """Responses that succeeded."""
    good_request_count: Figure
    error_request_count: Figure
    unfinished_request_count: Figure
    """Requests cut off by the end of the run, which are neither successes nor errors."""
    errors: dict[str, int]
    """Number of errors by status and code."""
    request_throughput: Figure
    goodput: Figure
    """Throughput of requests that met their objectives."""
    output_token_throughput: Figure
    total_token_throughput: Figure
    total_isl: Figure
    total_output_tokens: Figure
    total_cached_tokens: Figure
    benchmark_duration: Figure
    """Time from the first counted request to the last response."""


def summary(answers: Sequence[Answer], warm_up_s: float, promises: Sequence[SloClass]) -> Summary:
    """answers: those of the whole run. promises: in order of rising prompt length."""
    counted = [answer for answer in answers if answer.sent_s >= warm_up_s]
    ended = [answer for answer in counted if answer.ended_s is not None]
    faults = Counter(answer.fault for answer in counted if answer.fault)
    begun_s = min((answer.sent_s for answer in counted), default=0.0)
    lasted_s = max((answer.sent_s + (answer.ended_s or 0.0) for answer in ended), default=begun_s) - begun_s
    good = sum(answer.kept(promises) for answer in ended)
    prompts = sum(answer.prompt_tokens or 0 for answer in ended)
    outputs = sum(answer.output_tokens or 0 for answer in ended)

    def rate(number: int, unit: str) -> Figure:
        return Figure(f"{unit}/sec", number / lasted_s if lasted_s else 0.0)

    return Summary(
        time_to_first_token=_spread("ms", (answer.first_s for answer in ended), 1e3),
        inter_token_latency=_spread("ms", (answer.tpot_s for answer in ended), 1e3),
        inter_chunk_latency=_spread("ms", (gap for answer in ended for gap in answer.gaps_s), 1e3),
        request_latency=_spread("ms", (answer.ended_s for answer in ended), 1e3),
        input_sequence_length=_spread("tokens", (answer.prompt_tokens for answer in ended)),
        output_sequence_length=_spread("tokens", (answer.output_tokens for answer in ended)),
        request_count=Figure("requests", len(ended)),
        good_request_count=Figure("requests", good),
        error_request_count=Figure("requests", faults.total()),
        unfinished_request_count=Figure("requests", len(counted) - len(ended) - faults.total()),
        errors=dict(faults.most_common()),
        request_throughput=rate(len(ended), "requests"),
        goodput=rate(good, "requests"),
        output_token_throughput=rate(outputs, "tokens"),
        total_token_throughput=rate(prompts + outputs, "tokens"),
        total_isl=Figure("tokens", prompts),
        total_output_tokens=Figure("tokens", outputs),
        total_cached_tokens=Figure("tokens", sum(answer.cached_tokens for answer in ended)),
        benchmark_duration=Figure("sec", lasted_s),
    )


def _spread(unit: str, values: Iterable[float | None], factor: float = 1.0) -> Figure | None:
    ordered = sorted(value * factor for value in values if value is not None)
    if not ordered:
        return None
    p50, p90, p99 = (nearest_rank(ordered, percent) for percent in (50, 90, 99))
    # fsum: the mean of equal values is that value
    return Figure(unit, math.fsum(ordered) / len(ordered), ordered[0], p50, p90, p99, ordered[-1])


def tokens_per_s(answers: Iterable[Answer], until_s: float) -> float:
    """Output tokens per second of the responses that ended in the last five seconds."""
    recent = (
        answer for answer in answers if answer.ended_s is not None and answer.sent_s + answer.ended_s > until_s - 5
    )
    return sum(answer.output_tokens or 0 for answer in recent) / min(max(until_s, 1.0), 5.0)
