"""The number formats of a model's weights and KV cache, with their sizes."""

from __future__ import annotations

from enum import Enum

import msgspec

from engines.performance.model_shape import ModelShape


class Precision(Enum):
    """The precision of weights and KV cache together, as set when an engine is launched."""

    BF16 = "bf16"
    FP8 = "fp8"
    NVFP4 = "nvfp4"

    @property
    def weight_bytes(self) -> float:
        """Bytes per parameter. NVFP4 has 4 bits, plus an FP8 scale for every 16 parameters."""
        return {Precision.BF16: 2.0, Precision.FP8: 1.0, Precision.NVFP4: 0.5 + 1 / 16}[self]

    @property
    def kv_bytes(self) -> float:
        """Bytes per cached number; with NVFP4 weights the cache is FP8."""
        return 2.0 if self is Precision.BF16 else 1.0

    @property
    def projected(self) -> bool:
        """Whether the model of this precision was never compared with published figures."""
        return self is Precision.NVFP4

    def of(self, model: ModelShape) -> ModelShape:
        """`model` in this precision."""
        return msgspec.structs.replace(model, weight_bytes=self.weight_bytes, kv_bytes=self.kv_bytes)
