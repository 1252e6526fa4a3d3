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


class HeadNorm:
    """The same over each head of queries and keys at once; every head has its row of weights."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        """weight: (heads, head_dim)"""
        self._weight = weight
        self._epsilon = epsilon
        self._shape = (weight.shape[1],)

    def apply_(self, x: Tensor) -> None:
        """Normalise x: (tokens, heads, head_dim) in place."""
        x.copy_(torch.rms_norm(x, self._shape, None, self._epsilon).mul_(self._weight))
