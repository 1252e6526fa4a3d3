"""Root-mean-square normalisation."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class RMSNorm:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last dimension."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self.weight = weight
        self._epsilon = epsilon
        self._shape = (weight.shape[0],)
        # sqrt(mean(x^2) + e) = hypot(|x|, sqrt(width * e)) / sqrt(width)
        width = weight.shape[0]
        self._scaled = weight.float() * math.sqrt(width)
        self._floor = torch.tensor(math.sqrt(width * epsilon), device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (..., width). Returns the same shape and dtype."""
        if x.dtype is torch.float32:
            # torch has no single kernel for this on a CPU; these three operations take half the time of `rms_norm`
            length = torch.linalg.vector_norm(x, 2, -1, True).hypot_(self._floor)
            return (x * self._scaled).div_(length)
        # a float32 weight is more precise than x
        return torch.rms_norm(x.to(self.weight.dtype), self._shape, self.weight, self._epsilon).to(x.dtype)


class HeadNorm:
    """RMSNorm over each head of queries and keys at once; every head has its own row of weights."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        """weight: (heads, head_dim)"""
        self.weight = weight
        self._epsilon = epsilon
        self._shape = (weight.shape[1],)

    def apply_(self, x: Tensor) -> None:
        """Normalise x: (tokens, heads, head_dim) in place."""
        wide = x.float() if self.weight.dtype is torch.float32 else x
        x.copy_(torch.rms_norm(wide, self._shape, None, self._epsilon) * self.weight)
