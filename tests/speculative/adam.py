"""Adam in a few lines: the first of PyTorch's own optimizers imports its compiler, for nine seconds of CPU."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Adam:
    """Computes what `torch.optim.Adam` does with its default betas."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self._lr = lr
        self._moments = [(one, torch.zeros_like(one), torch.zeros_like(one)) for one in parameters if one.requires_grad]
        self._steps = 0

    def zero_grad(self) -> None:
        for parameter, _, _ in self._moments:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        self._steps += 1
        for parameter, mean, square in self._moments:
            if parameter.grad is None:
                continue
            mean.lerp_(parameter.grad, 0.1)
            square.lerp_(parameter.grad**2, 0.001)
            unbiased = (square / (1 - 0.999**self._steps)).sqrt() + 1e-8
            parameter -= self._lr / (1 - 0.9**self._steps) * mean / unbiased
