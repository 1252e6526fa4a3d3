"""Simulates FP8 (E4M3) arithmetic in float32. Any machine computes the numbers of an FP8 GPU, slowly.

A scale, amax / 448, is the factor that turns a rounded value back into the original one.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

MAX = 448.0
Weights = Literal["tensor", "channel"]
Activations = Literal["none", "token", "tensor"]


def scale_of(amax: Tensor) -> Tensor:
    """The scale for the largest magnitudes `amax`; never 0."""
    return amax.clamp_min(1e-12) / MAX


def rounded(x: Tensor, scale: Tensor) -> Tensor:
    """x / scale as the nearest E4M3 numbers, in float32; values beyond 448 become 448."""
    # clamp first, because older builds turn larger values into NaN
    return (x / scale).clamp_(-MAX, MAX).to(torch.float8_e4m3fn).float()


class Fp8Linear:
    """y = x W^T + b with weights, and optionally activations, rounded to E4M3."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, weights: Weights, activations: Activations, amax: float | None = None
    ) -> None:
        """weight: (out, in) float32; weights: one scale for all or one per output channel; activations: not rounded,
        with a scale computed per token, or with one static scale from `amax`."""
        self.shape = tuple(weight.shape)
        self._weight_scale = scale_of(weight.abs().amax(1) if weights == "channel" else weight.abs().max())
        self._weight = rounded(weight, self._weight_scale[:, None] if weights == "channel" else self._weight_scale)
        self._bias = None if bias is None else bias.float()
        self._activations = activations
        if activations == "tensor":
            if amax is None:
                raise ValueError("activations 'tensor' needs amax")
            self._activation_scale = scale_of(torch.tensor(amax))
        restored = self._weight * (self._weight_scale[:, None] if weights == "channel" else self._weight_scale)
        noise = float((weight - restored).square().sum())
        self.signal_to_noise_db = 10 * math.log10(float(weight.square().sum()) / noise) if noise else math.inf
        """Signal-to-noise ratio of the weights; E4M3 reaches about 31 dB."""

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in). Returns (tokens, out) of the same dtype."""
        inputs = x.float()
        scale = self._weight_scale
        if self._activations == "token":
            by_token = scale_of(inputs.abs().amax(1, keepdim=True))  # (tokens, 1)
            inputs, scale = rounded(inputs, by_token), by_token * scale
        elif self._activations == "tensor":
            inputs, scale = rounded(inputs, self._activation_scale), self._activation_scale * scale
        out = functional.linear(inputs, self._weight) * scale
        return (out if self._bias is None else out + self._bias).to(x.dtype)
