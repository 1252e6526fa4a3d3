"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor


class RMSNorm:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last dimension."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self._weight = weight
        self._epsilon = epsilon
        self._shape = (weight.shape[0],)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (..., width). Same shape and dtype back."""
        return torch.rms_norm(x, self._shape, self._weight, self._epsilon)
