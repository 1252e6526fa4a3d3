"""The latencies that exceedances are counted at: fixed when a release begins, so that no arm's data moves them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from control.releases.judge.policy import Policy

_MIN_BEYOND = 10
"""Requests of the baseline beyond the promoted quantile, below which its estimate is too rough."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds at each of `Policy.quantiles`. Empty: that latency is not judged (a model that has none)."""

    ttft_ms: tuple[float, ...] = ()
    itl_ms: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for an unusable threshold."""
        for name, values_ms in (("ttft_ms", self.ttft_ms), ("itl_ms", self.itl_ms)):
            if not all(map(is_time, values_ms)) or list(values_ms) != sorted(values_ms):
                raise ValueError(f"{name}: {values_ms} must be finite, 0 or more, and must not fall")


def is_time(value_ms: float) -> bool:
    """A possible measured time: finite and not negative. NaN is not one."""
    return 0 <= value_ms < math.inf


def least_requests(policy: Policy) -> int:
    """How many requests of the baseline place the quantile that is promoted by.

    A test of harm is as valid at a threshold that is a little off, so a higher one takes no more of them.
    """
    return math.ceil(_MIN_BEYOND / (1 - policy.promoted_quantile) - 1e-6)


def thresholds_of(policy: Policy, ttft_ms: Sequence[float], itl_ms: Sequence[float]) -> Thresholds:
    """The quantiles of the baseline's last requests, each one of the values themselves.

    A latency that no request has is not judged; what no clock can have measured is left out.
    Raises ValueError when there are too few to place the promoted one.
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
