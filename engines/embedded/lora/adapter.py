"""The weights of one adapter, in the form that is added to a model's fused linear layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from engines.layers.linear import Linear


class LowRank(NamedTuple):
    """An adapter's contribution to one linear layer's output: up(down(x))."""

    down: Linear
    """(parts * rank, in): the A matrices of every projection that the layer fuses, stacked."""
    up: Linear
    """(out, parts * rank): their B matrices, each in the rows and columns of its projection, times the adapter's
    scale."""

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in). Returns (tokens, out)."""
        return self.up(self.down(x))


class Adapter:
    """Loaded once, never changed; a request keeps the one it began with."""

    def __init__(
        self, name: str, path: str, rank: int, load_number: int, updates: Mapping[tuple[int, str], LowRank], size: int
    ) -> None:
        """load_number: of this load, unique in the process. updates: by layer and group (see `models.linears`). size:
        bytes of its weights."""
        self.name = name
        self.path = path
        self.rank = rank
        self.load_number = load_number
        self.size_bytes = size
        self._updates = updates

    def update(self, layer: int, group: str) -> LowRank | None:
        """Its update of one linear layer; None: none."""
        return self._updates.get((layer, group))
