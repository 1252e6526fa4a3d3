"""Rotary position embedding, precomputed for every position."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Rotary:
    """Rotates pairs of numbers of each head by angles that grow with the position (Su et al. 2021).

    The two numbers of a pair are adjacent, so that a pair is one complex number and a rotation is a product.
    Checkpoints of the Llama family have the first half of a head's numbers paired with the second; `side_by_side`
    reorders their weights.
    """

    def __init__(self, frequencies: Tensor, max_positions: int, scale: float = 1.0) -> None:
        """frequencies: (head_dim / 2,) float32, see `plain_frequencies`. scale: multiplies cos and sin (YaRN)."""
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
        self._turns = torch.polar(torch.full_like(angles, scale), angles)  # (positions, head_dim / 2) complex

    def to(self, device: torch.device) -> None:
        """Move the table to `device`."""
        self._turns = self._turns.to(device)

    def leave(self, numbers: int) -> None:
        """Leave the last numbers of every head as they are: further pairs that turn by nothing."""
        still = self._turns.new_ones(self._turns.shape[0], numbers // 2)
        self._turns = torch.cat((self._turns, still), 1)

    def table(self) -> Tensor:
        """(positions, head_dim) cosine and sine of every pair, adjacent, as numbers."""
        return torch.view_as_real(self._turns).flatten(1)

    def at(self, positions: Tensor) -> Tensor:
        """The rotations of a batch, (tokens, 1, head_dim / 2); taken once per step, used by every layer."""
        return self._turns.index_select(0, positions).unsqueeze(1)

    def rotate_(self, x: Tensor, turns: Tensor) -> None:
        """Rotate x: (tokens, heads, head_dim) in place."""
        if x.dtype is torch.float32:
            torch.view_as_complex(x.view(*x.shape[:-1], -1, 2)).mul_(turns)
            return
        wide = x.float()
        torch.view_as_complex(wide.view(*x.shape[:-1], -1, 2)).mul_(turns)
        x.copy_(wide)


def side_by_side(rows: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    """Reorder the rows that make queries or keys, (heads * head_dim, …), so that the pairs of a rotation are adjacent.

    Only the first `rotary_dim` of a head are rotated. Scores stay the same: they are products of queries and keys, both
    reordered.
    """
    heads = rows.view(-1, head_dim, *rows.shape[1:])
    halves = heads[:, :rotary_dim].reshape(-1, 2, rotary_dim // 2, *rows.shape[1:])  # (heads, half, pair, …)
    turned = halves.transpose(1, 2).flatten(1, 2)
    return torch.cat((turned, heads[:, rotary_dim:]), 1).view(rows.shape)


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


def yarn_frequencies(
    plain: Tensor, theta: float, factor: float, original_positions: int, beta_fast: float, beta_slow: float
) -> Tensor:
    """YaRN (Peng et al. 2023, section 3.2): dimensions that turn more than beta_fast times within the original context
    are kept, those that turn less than beta_slow times are divided by `factor`, a ramp between."""
    count = plain.shape[0]

    def dimension(turns: float) -> float:
        """Position in 0 .. count at which a frequency turns this often within the original context."""
        return count * math.log(original_positions / (turns * 2 * math.pi)) / math.log(theta)

    low = max(math.floor(dimension(beta_fast)), 0)
    # the bound is the head's width, not its half: checkpoints were trained with it
    high = min(math.ceil(dimension(beta_slow)), 2 * count - 1)
    ramp = ((torch.arange(count, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0.0, 1.0)
    return plain * (1 - ramp) + plain / factor * ramp


def long_scale(factor: float, original_positions: int) -> float:
    """LongRoPE's factor on cos and sin."""
    return math.sqrt(1 + math.log(factor) / math.log(original_positions)) if factor > 1 else 1.0


def yarn_scale(factor: float) -> float:
    """YaRN's factor on cos and sin, which sharpens attention over a stretched context."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
