"""Policy of a release: tolerances, error rates of the judge itself, and minimum evidence."""

from __future__ import annotations

import msgspec


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Split of `Policy.alpha` over the possible causes of a rollback. The sum is 1 or less."""

    ttft: float = 0.25
    itl: float = 0.15
    errors: float = 0.4
    """The largest weight, because a point of errors is a dozen events in twenty minutes of light traffic."""
    goodput: float = 0.05
    slices: float = 0.05
    reviews: float = 0.05
    shadow: float = 0.05


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules of one release, fixed when it begins.

    Raises ValueError with the field, its value and the allowed range (msgspec.ValidationError on decoding).
    """

    tolerance: float = 0.1
    """The candidate's latency is divided by 1 + this before it is compared: up to +10 % does not stop a release, and
    +10 % or more is not promoted."""
    error_tolerance: float = 0.0005
    """Share of requests by which the candidate may fail more often before that counts against it: 5 basis points."""
    error_margin: float = 0.005
    """Share of requests by which it must be shown not to fail more often: half a point."""
    goodput_tolerance: float = 0.01
    """Like `error_tolerance`, for requests that miss an objective; the next field is like `error_margin`."""
    goodput_margin: float = 0.02
    copy_tolerance: float = 0.01
    """Share of copies of requests by which the candidate alone may fail more often than the customers' own engines
    alone: copies run at the lowest priority."""
    alpha: float = 0.05
    """Probability that a release which is no worse is ever rolled back, over all metrics, stages and looks."""
    promotion_alpha: float = 0.05
    """Probability that a release which is worse by a margin is ever promoted to all traffic."""
    weights: Weights = Weights()
    quantiles: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
    """Rising quantiles of the baseline's latencies, which are the thresholds."""
    tail_quantiles: tuple[float, ...] = (0.95, 0.99, 0.995)
    """The `quantiles` at which a session's first exceedance is a coin. Half as many sessions exceed the highest as p99,
    but if only the tail has grown, the candidate's are a larger part of them."""
    promoted_quantile: float = 0.99
    """The one of `tail_quantiles` at which the candidate must be shown not to be worse by `tolerance`."""
    least_units: tuple[int, ...] = (200, 500, 1000)
    """Sessions that each arm needs in each stage before the next; the last stage is the one before all traffic, and
    also needs the proofs."""
    cold_requests: int = 50
    """The number of first requests of a stage, over both arms, that are set aside."""
    most_units: int = 200_000
    """Budget of evidence: sessions of both arms after which an undecided release is inconclusive. A person may grant
    more (`State.more_units`)."""
    needs_slices: bool = False
    """Whether the slices must have passed before all traffic."""
    least_votes: int = 0
    """Decisive review votes that are needed before all traffic."""

    def is_last(self, stage: int) -> bool:
        """Whether all traffic follows the stage."""
        return stage == len(self.least_units) - 1

    def __post_init__(self) -> None:
        """Refuse values with which no test is valid."""
        _require("tolerance", self.tolerance, 0, 0.5, "[0, 0.5]")
        for name in ("error_tolerance", "goodput_tolerance"):
            # a gain of -1 - tolerance/2 must stay above -1/0.9, at which the largest stake loses the whole purse
            _require(
                name, getattr(self, name), 0, 0.2, "[0, 0.2]; beyond, a test of harm could lose more than its purse"
            )
        _require(
            "copy_tolerance", self.copy_tolerance, 0, 0.1, "[0, 0.1]; beyond, its test could lose more than its purse"
        )
        for name in ("error_margin", "goodput_margin"):
            _require(name, getattr(self, name), 1e-6, 0.5, "(0, 0.5]")
        for name in ("alpha", "promotion_alpha"):
            _require(name, getattr(self, name), 1e-9, 0.5, "(0, 0.5]")
        shares = [getattr(self.weights, field) for field in self.weights.__struct_fields__]
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise ValueError(f"weights: {shares} must not be negative nor sum to more than 1; lower one of them")
        if list(self.quantiles) != sorted(set(self.quantiles)) or not all(0 < one < 1 for one in self.quantiles):
            raise ValueError(f"quantiles: {self.quantiles} must rise within (0, 1)")
        if not self.tail_quantiles or not set(self.tail_quantiles) <= set(self.quantiles):
            raise ValueError(f"tail_quantiles: {self.tail_quantiles} must be some of quantiles {self.quantiles}")
        if len(self.tail_quantiles) > 8:
            raise ValueError(
                f"tail_quantiles: {len(self.tail_quantiles)} must be 8 or fewer; each takes its share of alpha"
            )
        if self.promoted_quantile not in self.tail_quantiles:
            raise ValueError(
                f"promoted_quantile: {self.promoted_quantile} must be one of tail_quantiles {self.tail_quantiles}"
            )
        if not self.least_units or min(self.least_units) < 1:
            raise ValueError(f"least_units: {self.least_units} must hold 1 or more for each stage")
        if self.cold_requests < 0 or self.least_votes < 0 or self.most_units < 1:
            raise ValueError("cold_requests and least_votes must not be negative, most_units must be 1 or more")

    def alpha_of(self, metric: str) -> float:
        """The probability with which this metric alone may roll back a release that is no worse. Gate the slices at
        `alpha_of("slices")`."""
        return float(self.alpha * getattr(self.weights, metric))


def _require(name: str, value: float, low: float, high: float, allowed: str) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}: {value} must be in {allowed}")
