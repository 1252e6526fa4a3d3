"""The weights of one adapter, in a form that matches a model's fused linear layers."""

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
    """(out, parts * rank): the B matrices in the rows and columns of their projections, times the adapter's scale."""

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in). Returns (tokens, out)."""
        return self.up(self.down(x))


class Adapter:
    """An adapter, which never changes once loaded; a request keeps the adapter with which it began."""

    def __init__(
        self, name: str, path: str, rank: int, load_number: int, updates: Mapping[tuple[int, str], LowRank], size: int
    ) -> None:
        """load_number: unique in the process. updates: by layer and group (see `models.linears`). size: in bytes."""
        self.name = name
        self.path = path
        self.rank = rank
        self.load_number = load_number
        self.size_bytes = size
        self._updates = updates

    def update(self, layer: int, group: str) -> LowRank | None:
        """The update of one linear layer; None if it has none."""
        return self._updates.get((layer, group))
