"""Recursive least squares with forgetting, robust against outliers: how all rates are learnt from reports.

Source: Haykin, Adaptive Filter Theory, ch. 10, with Huber's weight for residuals beyond `CLIP` mean deviations.
"""

from __future__ import annotations

CLIP = 3.0
PRIOR_VARIANCE = 1e4
"""Before the first observations anything may be true."""


class Regression:
    """y ≈ Σ weights · features. A handful of features: everything is written out in plain lists."""

    def __init__(self, weights: tuple[float, ...], forgetting: float = 0.995) -> None:
        self.weights = list(weights)
        self.count = 0
        self._forgetting = forgetting
        size = len(weights)
        self._covariance = [[PRIOR_VARIANCE if row == at else 0.0 for at in range(size)] for row in range(size)]
        self._deviation = 0.0
        """Mean absolute residual, moving."""

    def predict(self, features: tuple[float, ...]) -> float:
        """The value expected, as far as learnt."""
        return sum(weight * feature for weight, feature in zip(self.weights, features, strict=True))

    def learn(self, features: tuple[float, ...], value: float) -> None:
        """Take in one observation."""
        self.count += 1
        covariance, size = self._covariance, len(features)
        residual = value - self.predict(features)
        size_of_residual = abs(residual)
        weight = 1.0
        if self.count > 2 * size and size_of_residual > CLIP * self._deviation > 0:
            weight = CLIP * self._deviation / size_of_residual
        step = max(1 / self.count, 0.02)
        self._deviation += step * (size_of_residual * weight - self._deviation)
        along = [sum(row[at] * features[at] for at in range(size)) for row in covariance]
        spread = self._forgetting / weight + sum(along[at] * features[at] for at in range(size))
        gain = [one / spread for one in along]
        for at in range(size):
            self.weights[at] += gain[at] * residual
        # forgetting without new directions would let the covariance grow without bound
        keep = 1.0 / self._forgetting if max(row[at] for at, row in enumerate(covariance)) < PRIOR_VARIANCE else 1.0
        for row in range(size):
            for at in range(size):
                covariance[row][at] = (covariance[row][at] - gain[row] * along[at]) * keep
