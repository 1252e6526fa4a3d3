"""The latencies above which exceedances are counted, fixed when a release begins so that no arm's data moves them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from control.releases.judge.policy import Policy

_MIN_BEYOND = 10
"""The fewest baseline requests beyond the promoted quantile: with fewer, its estimate is too rough."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds at each of `Policy.quantiles`; empty if the model has no such latency, which is then not judged."""

    ttft_ms: tuple[float, ...] = ()
    itl_ms: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for an unusable threshold."""
        for name, values_ms in (("ttft_ms", self.ttft_ms), ("itl_ms", self.itl_ms)):
            if not all(map(is_time, values_ms)) or list(values_ms) != sorted(values_ms):
                raise ValueError(f"{name}: {values_ms} must be finite, 0 or more, and must not fall")


def is_time(value_ms: float) -> bool:
    """Whether a value is a possible time: finite, not negative and not NaN."""
    return 0 <= value_ms < math.inf


def least_requests(policy: Policy) -> int:
    """How many baseline requests the estimate of the promoted quantile needs.

    A test of harm is as valid at a slightly inaccurate threshold, so a higher quantile needs no more requests.
    """
    return math.ceil(_MIN_BEYOND / (1 - policy.promoted_quantile) - 1e-6)


def thresholds_of(policy: Policy, ttft_ms: Sequence[float], itl_ms: Sequence[float]) -> Thresholds:
    """The quantiles of the baseline's last requests, each of them one of the values.

    A latency that no request has is not judged, and impossible times are left out.
    Raises ValueError if there are too few for the promoted quantile.
    """
    return Thresholds(ttft_ms=_quantiles(policy, "ttft_ms", ttft_ms), itl_ms=_quantiles(policy, "itl_ms", itl_ms))


def _quantiles(policy: Policy, name: str, values_ms: Sequence[float]) -> tuple[float, ...]:
    values_ms = [value_ms for value_ms in values_ms if is_time(value_ms)]
    if not values_ms:
        return ()
    needed = least_requests(policy)
    if len(values_ms) < needed:
        raise ValueError(
            f"{name}: the baseline has {len(values_ms)} requests, and {needed} are needed to measure the quantile "
            f"{policy.promoted_quantile:g} that is compared; wait for more requests, or start the release with a lower "
            "promoted_quantile"
        )
    ordered = sorted(values_ms)
    return tuple(ordered[min(len(ordered) - 1, math.ceil(one * len(ordered)) - 1)] for one in policy.quantiles)
