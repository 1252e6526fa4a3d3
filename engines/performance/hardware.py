"""The data-sheet limits of GPUs, and the shares of them that serving software reaches."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    """Data-sheet limits of one GPU, and the number of GPUs in one NVLink domain."""

    name: str
    fp8_flops: float
    """Dense FP8 operations per second; 0 without FP8 units."""
    bf16_flops: float
    memory_bytes: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    """Bandwidth to the other GPUs of its node, in one direction."""
    fp4_flops: float = 0.0
    """Dense NVFP4 operations per second; 0 without FP4 units."""
    per_node: int = 8
    """GPUs of one machine, each linked to every other."""
    chunk_tokens: int = 8_192
    """Prompt tokens in a step beyond which a longer chunk does not use the GPU better."""

    def peak_flops(self, weight_bytes: float) -> float:
        """Dense operations per second on weights of `weight_bytes` bytes each; 0 if the GPU has no units for them."""
        if weight_bytes < 1:
            return self.fp4_flops
        return self.fp8_flops if weight_bytes == 1 else self.bf16_flops


class Efficiency(msgspec.Struct, frozen=True):
    """Shares of the data-sheet limits that are reached, and the software's time per step, fitted to published figures.

    The figures and the fit are in tests/engines/performance/test_published_figures.py.
    """

    matrix: float = 0.58
    """Share of peak operations in the linear layers of a long prefill."""
    attention: float = 0.40
    """Share of peak operations in the attention of a long prefill."""
    memory: float = 0.72
    """Share of memory bandwidth when reading weights and cached keys and values."""
    link: float = 0.75
    """Share of link bandwidth in the all-reduces after each half of a layer."""
    layer_s: float = 15e-6
    """Time per layer in a step that only decodes and replays a recorded graph."""
    layer_sum_s: float = 20e-6
    """Time per layer for its two all-reduces in such a step."""
    prefill_layer_s: float = 120e-6
    """Time per layer in a step with prefill, launched kernel by kernel."""
    prefill_layer_sum_s: float = 80e-6
    """Time per layer for its two all-reduces in a step with prefill."""
    sequence_s: float = 10e-6
    """Time per sequence and step for sampling, detokenizing and bookkeeping."""
