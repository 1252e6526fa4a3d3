"""An operator's options for judging a release. The judge's defaults apply to omitted options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.errors import InvalidField

MIN_UNITS = (200, 500, 1_000)
"""Sessions that each arm needs before the next stage, for the last three stages; earlier stages use the first."""

PROMOTION_ALPHA = 0.05
"""The judge's default."""
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
"""Default quantiles of the baseline's latencies for the comparison."""
PROMOTED = 0.99
"""Default quantile for the promotion."""
MAX_PROMOTED = 0.9995
"""Beyond it, 20,000 requests of the baseline hold fewer than the ten that the judge needs."""
TAILS = 3
"""Number of the highest quantiles that are tested individually, in addition to the promoted one."""
MAX_UNITS = 10_000_000
"""The largest budget of evidence, and the largest grant to one."""


Quantile = Annotated[float, Meta(gt=0, lt=1)]


class Margins(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """tolerance: the part by which latency may be longer. error_margin, goodput_margin: shares of requests by which the
    candidate must be shown not to be worse. alpha: the maximum probability that a release which is no worse is rolled
    back. promotion_alpha: the maximum probability that a release which is worse by a margin gets all traffic.
    least_units: sessions of each arm that a stage needs, one number for each stage between shadow and all traffic.
    quantiles: rising quantiles of the baseline's latencies, with which the candidate's are compared. promoted_quantile:
    the quantile at which the candidate must be shown not to be slower by the tolerance. It needs ten of the baseline's
    requests beyond it before the release begins. By default, it is 0.99 if that is one of the quantiles, otherwise the
    highest. cold_requests: a stage's first requests, which are set aside. most_units: sessions after which an undecided
    release is held. least_votes: decisive votes of reviewers that the release needs."""

    tolerance: Annotated[float, Meta(ge=0, le=0.5)] | None = None
    error_margin: Annotated[float, Meta(ge=1e-6, le=0.5)] | None = None
    goodput_margin: Annotated[float, Meta(ge=1e-6, le=0.5)] | None = None
    alpha: Annotated[float, Meta(ge=1e-9, le=0.5)] | None = None
    promotion_alpha: Annotated[float, Meta(ge=1e-9, le=0.5)] | None = None
    least_units: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(max_length=20)] | None = None
    quantiles: Annotated[list[Quantile], Meta(min_length=1, max_length=20)] | None = None
    promoted_quantile: Quantile | None = None
    cold_requests: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    most_units: Annotated[int, Meta(ge=1, le=MAX_UNITS)] | None = None
    least_votes: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None

    def given(self) -> dict[str, object]:
        """The options that were set, by name, for the judge's policy."""
        found = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        if self.quantiles is not None or self.promoted_quantile is not None:
            quantiles = tuple(self.quantiles or QUANTILES)
            promoted = self._promoted(quantiles)
            tails = tuple(sorted({*quantiles[-TAILS:], promoted}))
            found |= {"quantiles": quantiles, "tail_quantiles": tails, "promoted_quantile": promoted}
        return found

    def _promoted(self, quantiles: Sequence[float]) -> float:
        return self.promoted_quantile or (PROMOTED if PROMOTED in quantiles else quantiles[-1])

    def require_quantiles(self) -> None:
        """Raise InvalidField unless the quantiles rise and contain the promoted one, which the baseline can measure."""
        quantiles = self.quantiles or list(QUANTILES)
        listed = ", ".join(f"{one:g}" for one in quantiles)
        if quantiles != sorted(set(quantiles)):
            raise InvalidField(
                f"Invalid value for 'quantiles': {listed}. Give them in ascending order, without repeats.",
                param="margins.quantiles",
            )
        if self.promoted_quantile is not None and self.promoted_quantile not in quantiles:
            raise InvalidField(
                f"Invalid value for 'promoted_quantile': {self.promoted_quantile:g}. It is one of quantiles, {listed}.",
                param="margins.promoted_quantile",
            )
        promoted = self._promoted(quantiles)
        if promoted > MAX_PROMOTED:
            raise InvalidField(
                f"Invalid value for 'promoted_quantile': {promoted:g}. Give one of quantiles up to {MAX_PROMOTED:g}, "
                "because the baseline's requests cannot measure a higher one.",
                param="margins.promoted_quantile",
            )


def least_units_of(stages: int) -> list[int]:
    """The default for a release with this many stages between shadow and all traffic."""
    return [MIN_UNITS[max(0, at)] for at in range(len(MIN_UNITS) - stages, len(MIN_UNITS))]
