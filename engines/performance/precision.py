"""In how many bytes a model's weights and cached keys and values are kept."""

from __future__ import annotations

from enum import Enum

import msgspec

from engines.performance.model_shape import ModelShape


class Precision(Enum):
    """Of weights and of the KV cache together, as engines are launched with them."""

    BF16 = "bf16"
    FP8 = "fp8"
    NVFP4 = "nvfp4"

    @property
    def weight_bytes(self) -> float:
        """Per parameter. NVFP4: 4 bits, and an FP8 scale for every 16 of them."""
        return {Precision.BF16: 2.0, Precision.FP8: 1.0, Precision.NVFP4: 0.5 + 1 / 16}[self]

    @property
    def kv_bytes(self) -> float:
        """Per cached number; beside NVFP4 weights the cache is FP8."""
        return 2.0 if self is Precision.BF16 else 1.0

    @property
    def projected(self) -> bool:
        """No published figure was held against the model of this precision."""
        return self is Precision.NVFP4

    def of(self, model: ModelShape) -> ModelShape:
        """The same model kept so."""
        return msgspec.structs.replace(model, weight_bytes=self.weight_bytes, kv_bytes=self.kv_bytes)
