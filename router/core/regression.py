"""Non-negative least squares with forgetting, by which all rates are learnt from reports.

Residuals are relative to the value, so that short times are learnt as well as long ones. A value far above the
expectation counts even less, because a request that met a hiccup reveals little about the engine. The problem is solved
by coordinate descent from the last solution (Franc et al. 2005), with a few multiplications per observation.
"""

from __future__ import annotations

OUTLIER = 3.0
"""Ratio of a value to the expected one from which it loses weight."""
SWEEPS = 2


class Regression:
    """The model y ≈ Σ weights · features, for which the caller scales features to be near 1.

    prior: weights before the first observation, which count as much as `strength` observations. smallest: lower bound
    of the values by which residuals are divided.
    """

    def __init__(
        self, prior: tuple[float, ...], smallest: float, strength: float = 2.0, forgetting: float = 0.998
    ) -> None:
        self.weights = list(prior)
        self.count = 0
        self._smallest = smallest
        self._forgetting = forgetting
        size = len(prior)
        self._products = [[strength if row == at else 0.0 for at in range(size)] for row in range(size)]
        self._targets = [strength * weight for weight in prior]

    def predict(self, features: tuple[float, ...]) -> float:
        """The expected value; never negative."""
        return sum(weight * feature for weight, feature in zip(self.weights, features, strict=True))

    def learn(self, features: tuple[float, ...], value: float, worth: float = 1.0) -> None:
        """Process one observation. worth: its weight relative to others, 0 to 1."""
        self.count += 1
        expected = self.predict(features)
        weight = worth / max(value, self._smallest) ** 2
        if self.count > 8 and value > OUTLIER * expected > 0:
            weight *= OUTLIER * expected / value
        products, targets, weights, keep = self._products, self._targets, self.weights, self._forgetting
        size = range(len(features))
        for row in size:
            scaled = weight * features[row]
            targets[row] = keep * targets[row] + scaled * value
            line = products[row]
            for at in size:
                line[at] = keep * line[at] + scaled * features[at]
        for _ in range(SWEEPS):
            for row in size:
                line = products[row]
                others = targets[row]
                for at in size:
                    if at != row:
                        others -= line[at] * weights[at]
                weights[row] = max(others / line[row], 0.0) if line[row] > 0 else 0.0
