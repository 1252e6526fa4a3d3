"""Drafts that were drawn, with the distributions they were drawn from."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Draws(NamedTuple):
    """Guesses at the next tokens, each drawn given those before it. `verify` keeps or rejects them."""

    ids: list[int]
    law: Tensor
    """(len(ids), vocabulary) float32: exactly what each was drawn from."""
