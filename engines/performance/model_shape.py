"""The dimensions of a language model that determine the cost of a step."""

from __future__ import annotations

import msgspec


class ModelShape(msgspec.Struct, frozen=True):
    """A dense decoder with grouped-query attention."""

    name: str
    parameters: float
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    weight_bytes: float = 1.0
    """Bytes per parameter: 1 for FP8, 2 for BF16."""
    kv_bytes: float = 1.0
    """Bytes per cached number."""

    @property
    def weights_bytes(self) -> float:
        return self.parameters * self.weight_bytes

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of the keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.kv_bytes
