"""The decisions of Flagger and Argo Rollouts on the same requests, by the rules of their documentation.

Both query a metric at an interval and compare it with a fixed limit. The equivalent of Slipstream's policy is a p99 of
time to first token and of the longest gap of at most 1.1 times the baseline's (given here without error), and at least
99 % of requests without an error.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from benchmarks.canary_rollouts.traffic import ITL_MEDIAN_MS, TTFT_MEDIAN_MS, Stream, p99_ms

SLOWER = 1.1
MIN_SUCCESS = 0.99


@dataclasses.dataclass(frozen=True)
class Rival:
    """A rule: the number of failed checks before a rollback, and of steps before a promotion."""

    name: str
    interval_min: int
    failures_to_roll_back: int
    steps: int
    """Steps after which it is promoted to all traffic."""
    by_the_clock: bool
    """Whether every check is a step, not only a passed one."""
    source: str


FLAGGER = Rival(
    "Flagger", 1, 10, 10, False, "interval 1m, threshold 10, stepWeight 5, maxWeight 50 (tutorials/skipper)"
)
ARGO = Rival(
    "Argo Rollouts",
    5,
    4,
    10,
    True,
    "interval 5m, failureLimit 3, five steps of 20 % and 10 minutes (features/analysis)",
)


def judge(rival: Rival, stream: Stream, *, held: bool) -> tuple[int | None, int | None]:
    """The minutes of its rollback and of its promotion; held: see `benchmarks.canary_rollouts.rollout.play`."""
    of_candidate = stream.candidate
    second, failed = stream.second[of_candidate], stream.failed[of_candidate]
    latencies = (
        (stream.ttft_ms[of_candidate], SLOWER * p99_ms(TTFT_MEDIAN_MS)),
        (stream.itl_ms[of_candidate], SLOWER * p99_ms(ITL_MEDIAN_MS)),
    )
    every_s = 60.0 * rival.interval_min
    checks = int(stream.second[-1] // every_s) if len(stream.second) else 0
    edges = np.searchsorted(second, every_s * np.arange(checks + 1))
    failures = passes = 0
    promoted = None
    for check in range(checks):
        of = slice(edges[check], edges[check + 1])
        if edges[check] == edges[check + 1]:
            continue  # no traffic: neither moves
        if _passes(failed[of], [(latency[of], limit_ms) for latency, limit_ms in latencies]):
            passes += 1
        else:
            failures += 1
        minute = (check + 1) * rival.interval_min
        if failures >= rival.failures_to_roll_back:
            return minute, promoted
        steps = check + 1 if rival.by_the_clock else passes
        if promoted is None and steps >= rival.steps:
            promoted = minute
        if promoted is not None and not held:
            break
    return None, promoted


def _passes(failed: npt.NDArray[np.bool_], latencies: list[tuple[npt.NDArray[np.float64], float]]) -> bool:
    if 1 - failed.mean() < MIN_SUCCESS:
        return False
    return all(np.quantile(latency, 0.99) <= limit_ms for latency, limit_ms in latencies)
