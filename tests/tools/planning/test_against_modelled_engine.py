"""The closed forms of one replica against the modelled engine, whose every step is played through.

What they differ by is told with each plan (`tools/planning/measured_error.py`), and held to a percent both ways.
"""

from __future__ import annotations

import functools
import random
from typing import NamedTuple

import pytest

from engines.performance.catalog import node
from engines.performance.engine import Ended, EngineLimits, FirstToken, ModelledEngine
from engines.performance.job import Job
from engines.performance.roofline import Roofline
from tools.planning.measured_error import LONG_ANSWERS, SHORT_ANSWERS, FormulaErrors, formula_errors
from tools.planning.operating_point import OperatingPoint, at_batch
from tools.planning.workload import Workload

CHUNK = 8_192
WARM_UP = 0.2
PERCENT = 0.0075
"""Bounds are told in whole ones, and half of one more is rounding."""
REPLICAS = (
    ("70b-fp8-4xh100", 3_000, 400, (0.2, 0.4, 0.6)),
    ("8b-fp8-1xh100", 1_500, 200, (0.2, 0.4, 0.6)),
    ("70b-fp8-2xh100", 500, 800, (0.2, 0.4)),
    ("8b-fp8-1xh100", 120, 25, (0.2, 0.4)),
    ("8b-fp8-1xh100", 6_000, 25, (0.5,)),
)
"""Prompt and answer in tokens, and the parts of its time that it spends with prompts."""


class Played(NamedTuple):
    tpot_s: float
    ttft_p99_s: float


def played(roofline: Roofline, workload: Workload, requests_per_s: float, requests: int, seed: int) -> Played:
    """Random arrivals of prompts and answers whose lengths are exponential."""
    engine = ModelledEngine(roofline, EngineLimits(batch_tokens=CHUNK, max_running=1 << 20))
    source = random.Random(seed)
    coming_s, number = source.expovariate(requests_per_s), 0
    began: list[float] = []
    first: dict[str, float] = {}
    waited: list[float] = []
    decoded: list[tuple[float, int]] = []
    while len(decoded) < requests:
        if engine.step_ends_at is None or coming_s <= engine.step_ends_at:
            prompt = max(int(source.expovariate(1 / workload.new_tokens)), 1)
            answer = max(int(source.expovariate(1 / workload.output_tokens)), 2)
            began.append(coming_s)
            engine.submit(Job(str(number), prompt, answer), coming_s)
            number += 1
            coming_s += source.expovariate(requests_per_s)
            continue
        now = engine.step_ends_at
        for news in engine.finish_step(now):
            if isinstance(news, FirstToken):
                first[news.job.id] = now
                waited.append(now - began[int(news.job.id)])
            elif isinstance(news, Ended):
                decoded.append((now - first[news.job.id], news.job.output_tokens - 1))
    waited = sorted(waited[int(WARM_UP * requests) :])
    decoded = decoded[int(WARM_UP * requests) :]
    return Played(
        sum(taken_s for taken_s, _ in decoded) / sum(tokens for _, tokens in decoded),
        waited[int(0.99 * len(waited))],
    )


def point_at(roofline: Roofline, workload: Workload, prompt_share: float) -> OperatingPoint:
    """The replica that spends this part of its time with prompts."""
    return next(
        point
        for point in (at_batch(roofline, workload, CHUNK, batch) for batch in range(1, 512))
        if point.requests_per_s * point.prefill_s >= prompt_share
    )


@functools.cache
def errors_at(name: str, prompt_tokens: int, output_tokens: int, prompt_share: float) -> tuple[float, float]:
    """Of the time per token and of the first token's p99."""
    roofline = Roofline(node(name))
    workload = Workload(1.0, prompt_tokens, output_tokens)
    point = point_at(roofline, workload, prompt_share)
    runs = [played(roofline, workload, point.requests_per_s, 4_000, seed) for seed in range(3)]
    tpot_s = sum(run.tpot_s for run in runs) / len(runs)
    ttft_p99_s = sum(run.ttft_p99_s for run in runs) / len(runs)
    planned_s = point.ttft_p99_s(workload, 1, point.requests_per_s)
    print(
        f"{name} {point.batch}: {point.tpot_s:.4f} ({tpot_s:.4f}) s, {point.tpot_s / tpot_s - 1:+.1%}; "
        f"{planned_s:.3f} ({ttft_p99_s:.3f}) s, {planned_s / ttft_p99_s - 1:+.1%}"
    )
    return point.tpot_s / tpot_s - 1, planned_s / ttft_p99_s - 1


@pytest.mark.parametrize("told", [LONG_ANSWERS, SHORT_ANSWERS])
def test_a_plan_tells_the_errors_that_are_found_now(told: FormulaErrors) -> None:
    """The lowest and the highest of all replicas whose answers are of that length."""
    found = [
        errors_at(name, prompt_tokens, output_tokens, prompt_share)
        for name, prompt_tokens, output_tokens, prompt_shares in REPLICAS
        if formula_errors(output_tokens) is told
        for prompt_share in prompt_shares
    ]
    for told_bounds, errors in zip((told.time_per_token, told.ttft_p99), zip(*found, strict=True), strict=True):
        assert told_bounds == pytest.approx((min(errors), max(errors)), abs=PERCENT)
