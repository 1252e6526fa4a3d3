"""Muon for matrices, AdamW for tables and norms (Jordan et al. 2024): two optimizers stepped as one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Optimizer:
    """Rates are peaks; each step uses a share of them."""

    def __init__(self, model: nn.Module, muon_rate: float, adam_rate: float) -> None:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            table = parameter.ndim != 2 or "embed" in name or "lm_head" in name
            (others if table else matrices).append(parameter)
        self._parameters = [*matrices, *others]
        self._parts: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(matrices, lr=muon_rate, weight_decay=0.0), muon_rate),
            (torch.optim.AdamW(others, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0), adam_rate),
        ]

    def step(self, share: float) -> float:
        """Move by the gradients, clipped to a norm of 1, and clear them. Returns the norm before clipping."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, 1.0))
        for part, rate in self._parts:
            for group in part.param_groups:
                group["lr"] = rate * share
            part.step()
            part.zero_grad(set_to_none=True)
        return norm

    def state(self) -> list[dict[str, Any]]:
        """The state for a checkpoint."""
        return [part.state_dict() for part, _ in self._parts]

    def restore(self, states: list[dict[str, Any]]) -> None:
        """Restore a checkpoint's state; the rates stay those given to this object."""
        for (part, _), state in zip(self._parts, states, strict=True):
            part.load_state_dict(state)
