"""What a graphics card can do on paper, and what share of it serving software reaches."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    """Data-sheet limits of one card, and how many of them one NVLink domain joins."""

    name: str
    fp8_flops: float
    """Dense FP8 operations per second; 0: it has no FP8 units."""
    bf16_flops: float
    memory_bytes: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    """To the other cards of its node, one direction."""
    fp4_flops: float = 0.0
    """Dense NVFP4 operations per second; 0: it has no FP4 units."""
    per_node: int = 8
    """Cards of one machine, each linked with every other."""
    chunk_tokens: int = 8_192
    """Prompt tokens in a step from which on a longer chunk fills the card no better."""

    def peak_flops(self, weight_bytes: float) -> float:
        """Dense operations per second in the units that multiply weights of so many bytes; 0: it has none."""
        if weight_bytes < 1:
            return self.fp4_flops
        return self.fp8_flops if weight_bytes == 1 else self.bf16_flops


class Efficiency(msgspec.Struct, frozen=True):
    """Shares of the data sheet that are reached, and what the software costs per step; fitted to published figures.

    The figures and the fit are in tests/engines/performance/test_published_figures.py.
    """

    matrix: float = 0.58
    """Of peak operations, in the linear layers of a long prefill."""
    attention: float = 0.40
    """Of peak operations, in the attention of a long prefill."""
    memory: float = 0.72
    """Of memory bandwidth, when reading weights and cached keys and values."""
    link: float = 0.75
    """Of link bandwidth, in the sums over cards after each half of a layer."""
    layer_s: float = 15e-6
    """Per layer and step that replays a recorded graph: decoding only."""
    layer_sum_s: float = 20e-6
    """The same for the two sums over cards of a layer."""
    prefill_layer_s: float = 120e-6
    """Per layer and step with prefill in it, launched kernel by kernel."""
    prefill_layer_sum_s: float = 80e-6
    """The same for its two sums over cards."""
    sequence_s: float = 10e-6
    """Per sequence and step: sampling, detokenizing, bookkeeping."""
