"""Rotary position embedding, precomputed for every position."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Rotary:
    """Rotates halves of each head by angles that grow with the position (Su et al. 2021, in Llama's half-split)."""

    def __init__(self, frequencies: Tensor, max_positions: int, dtype: torch.dtype, scale: float = 1.0) -> None:
        """frequencies: (head_dim / 2,) float32, see `plain_frequencies`. scale: multiplies cos and sin (YaRN)."""
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
        cos, sin = angles.cos() * scale, angles.sin() * scale
        self._half = frequencies.shape[0]
        self._cos = torch.cat((cos, cos), -1).to(dtype)  # (positions, head_dim)
        # the sign of the rotation sits in the table, so that the swap of halves is a plain roll
        self._sin = torch.cat((-sin, sin), -1).to(dtype)  # (positions, head_dim)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for a batch, each (tokens, 1, head_dim); taken once per step, used by every layer."""
        return self._cos.index_select(0, positions).unsqueeze(1), self._sin.index_select(0, positions).unsqueeze(1)

    def rotate_(self, x: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Rotate x: (tokens, heads, head_dim) in place."""
        x.copy_(torch.addcmul(x * cos, x.roll(self._half, -1), sin))


def plain_frequencies(head_dim: int, theta: float) -> Tensor:
    """theta^(-2i/head_dim) for i in 0 .. head_dim/2, float32."""
    return 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)


def llama3_frequencies(
    plain: Tensor, factor: float, low_frequency_factor: float, high_frequency_factor: float, original_positions: int
) -> Tensor:
    """Llama 3.1's stretching: long wavelengths divided by `factor`, short ones kept, a ramp between."""
    wavelengths = 2 * math.pi / plain
    ramp = (original_positions / wavelengths - low_frequency_factor) / (high_frequency_factor - low_frequency_factor)
    keep = ramp.clamp(0.0, 1.0)
    return plain * keep + plain / factor * (1 - keep)


def linear_frequencies(plain: Tensor, factor: float) -> Tensor:
    """Position interpolation: every position counts as 1/factor of itself (Chen et al. 2023)."""
    return plain / factor


def yarn_frequencies(
    plain: Tensor, theta: float, factor: float, original_positions: int, beta_fast: float, beta_slow: float
) -> Tensor:
    """YaRN (Peng et al. 2023, section 3.2): dimensions that turn more than beta_fast times within the original context
    are kept, those that turn less than beta_slow times are divided by `factor`, a ramp between."""
    count = plain.shape[0]

    def dimension(turns: float) -> float:
        """Where in 0 .. count a frequency turns so often within the original context."""
        return count * math.log(original_positions / (turns * 2 * math.pi)) / math.log(theta)

    low = max(math.floor(dimension(beta_fast)), 0)
    # the bound is the head's width, not its half: checkpoints were trained with it
    high = min(math.ceil(dimension(beta_slow)), 2 * count - 1)
    ramp = ((torch.arange(count, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0.0, 1.0)
    return plain * (1 - ramp) + plain / factor * ramp


def yarn_scale(factor: float) -> float:
    """YaRN's factor on cos and sin, which sharpens attention over a stretched context."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
