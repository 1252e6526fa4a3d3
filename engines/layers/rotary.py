"""Rotary position embedding, precomputed for every position."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Rotary:
    """Rotates pairs of numbers of each head by angles that grow with the position (Su et al. 2021).

    The two numbers of a pair are adjacent, so that a pair is one complex number and a rotation is a product.
    Checkpoints of the Llama family pair the first half of a head's numbers with the second half; `side_by_side`
    reorders their weights.
    """

    def __init__(self, frequencies: Tensor, max_positions: int, scale: float = 1.0) -> None:
        """frequencies: (head_dim / 2,) float32, see `plain_frequencies`. scale: factor on cos and sin (YaRN)."""
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
        self._turns = torch.polar(torch.full_like(angles, scale), angles)  # (positions, head_dim / 2) complex

    def to(self, device: torch.device) -> None:
        """Move the table to `device`."""
        self._turns = self._turns.to(device)

    def leave(self, numbers: int) -> None:
        """Add pairs with a rotation of 1, which leave the last `numbers` numbers of every head unchanged."""
        still = self._turns.new_ones(self._turns.shape[0], numbers // 2)
        self._turns = torch.cat((self._turns, still), 1)

    def table(self) -> Tensor:
        """(positions, head_dim): the cosine and sine of every pair, adjacent, as real numbers."""
        return torch.view_as_real(self._turns).flatten(1)

    def at(self, positions: Tensor) -> Tensor:
        """The rotations of a batch, (tokens, 1, head_dim / 2); computed once per step, used by every layer."""
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
    """Reorder rows of the query or key weights, (heads * head_dim, …), so that the pairs of a rotation are adjacent.

    Only the first `rotary_dim` numbers of a head are rotated. Attention scores do not change, because queries and keys
    have the same order.
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
    """Llama 3.1's scaling: divides the frequencies of long wavelengths by `factor`, keeps short ones, ramps between."""
    wavelengths = 2 * math.pi / plain
    ramp = (original_positions / wavelengths - low_frequency_factor) / (high_frequency_factor - low_frequency_factor)
    keep = ramp.clamp(0.0, 1.0)
    return plain * keep + plain / factor * (1 - keep)


def yarn_frequencies(
    plain: Tensor, theta: float, factor: float, original_positions: int, beta_fast: float, beta_slow: float
) -> Tensor:
    """YaRN (Peng et al. 2023, section 3.2): keeps frequencies that turn more than beta_fast times within the original
    context, divides those that turn less than beta_slow times by `factor`, and ramps between."""
    count = plain.shape[0]

    def dimension(turns: float) -> float:
        """Index in 0 .. count at which a frequency turns this often within the original context."""
        return count * math.log(original_positions / (turns * 2 * math.pi)) / math.log(theta)

    low = max(math.floor(dimension(beta_fast)), 0)
    # the bound is the head's width and not half of it, because checkpoints were trained with it
    high = min(math.ceil(dimension(beta_slow)), 2 * count - 1)
    ramp = ((torch.arange(count, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0.0, 1.0)
    return plain * (1 - ramp) + plain / factor * ramp


def long_scale(factor: float, original_positions: int) -> float:
    """LongRoPE's factor on cos and sin."""
    return math.sqrt(1 + math.log(factor) / math.log(original_positions)) if factor > 1 else 1.0


def yarn_scale(factor: float) -> float:
    """YaRN's factor on cos and sin, which sharpens attention over a stretched context."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
