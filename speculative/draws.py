"""Sampled drafts with their distributions."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Draws(NamedTuple):
    """Drafts of the next tokens, each sampled given the drafts before it. `verify` keeps or rejects them."""

    ids: list[int]
    law: Tensor
    """(len(ids), vocabulary) float32: the exact distribution of each draft."""
