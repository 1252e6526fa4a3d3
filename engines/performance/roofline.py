"""Computes the time of one engine step: linear layers and attention, each bound by arithmetic or by memory.

    linear    = max(2 · parameters · tokens / flops,  weight bytes / bandwidth) attention = max(4 · layers · heads ·
    head size · (token, context) pairs / flops,  cached bytes read / bandwidth) sums      = bytes exchanged between GPUs
    / link bandwidth step      = linear + attention + sums + launch overhead + bookkeeping per sequence

Source: Williams et al. 2009 (roofline), applied per operator. Times in seconds.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from engines.performance.hardware import Efficiency, Gpu
from engines.performance.memory import MemoryDivision
from engines.performance.model_shape import ModelShape

ACTIVATION_BYTES = 2.0
"""Activations cross the links in BF16."""


class Node(msgspec.Struct, frozen=True):
    """One replica: a model whose every layer is spread over all GPUs of a machine."""

    name: str
    gpu: Gpu
    gpus: int
    model: ModelShape
    efficiency: Efficiency = Efficiency()
    usable_memory: float = 0.9
    """Share of memory that the engine may fill; activations and the runtime take the rest."""
    adapter_bytes: float = 0.0
    """Bytes of that share, over all GPUs together, for slots of LoRA adapters."""

    @property
    def memory(self) -> MemoryDivision:
        """The division of the machine's memory. With more GPUs than KV heads, GPUs hold copies of each other's
        heads."""
        total_bytes = self.gpus * self.gpu.memory_bytes
        return MemoryDivision(
            total_bytes=total_bytes,
            reserve_bytes=total_bytes * (1 - self.usable_memory),
            weights_bytes=self.model.weights_bytes,
            kv_bytes_per_token=self.model.kv_bytes_per_token * max(self.gpus / self.model.kv_heads, 1.0),
            adapter_bytes=self.adapter_bytes,
        )

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens whose keys and values fit next to the weights."""
        return self.memory.kv_tokens


class StepTimes(Protocol):
    """The times of a machine that the engine model needs, from a roofline or measured on a real machine."""

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens whose keys and values fit."""
        ...

    @property
    def read_s_per_token(self) -> float:
        """Time that one more cached token adds to a step."""
        ...

    def step_s(self, prefill_tokens: int, prefill_pairs: float, sequences: int, context_tokens: int) -> float: ...

    def decode_s(self, sequences: int, context_tokens: int) -> float: ...

    def decode_run_s(self, steps: int, sequences: int, context_tokens: int) -> float: ...


class Roofline:
    """Step times of one node, computed with few multiplications because every modelled step needs one.

    speed: the machine's true speed, 1.0 for the data sheet's; a simulator hides it from the router.
    """

    def __init__(self, node: Node, speed: float = 1.0) -> None:
        gpu, model, share = node.gpu, node.model, node.efficiency
        peak = gpu.peak_flops(model.weight_bytes) * node.gpus
        bandwidth = gpu.memory_bytes_per_s * node.gpus * share.memory * speed
        several = node.gpus > 1
        self.node = node
        self.kv_capacity_tokens = node.kv_capacity_tokens
        self.linear_s_per_token = 2 * model.parameters / (peak * share.matrix * speed)
        self.weights_s = model.weights_bytes / bandwidth
        self.pair_s = 4 * model.layers * model.heads * model.head_size / (peak * share.attention * speed)
        self.read_s_per_token = node.memory.kv_bytes_per_token / bandwidth
        exchanged_bytes = 2 * model.layers * model.hidden * ACTIVATION_BYTES * 2 * (node.gpus - 1) / node.gpus
        self.sum_s_per_token = exchanged_bytes / (gpu.link_bytes_per_s * share.link * speed)
        self.decode_overhead_s = model.layers * (share.layer_s + share.layer_sum_s * several) / speed
        self.prefill_overhead_s = model.layers * (share.prefill_layer_s + share.prefill_layer_sum_s * several) / speed
        self.sequence_s = share.sequence_s / speed

    def step_s(self, prefill_tokens: float, prefill_pairs: float, sequences: int, context_tokens: float) -> float:
        """Time of a step that prefills some tokens and generates one for every running sequence.

        prefill_pairs: sum over the prefill's tokens of the positions that each attends to. sequences: the running
        sequences. context_tokens: the sum of their contexts.
        """
        tokens = prefill_tokens + sequences
        if tokens == 0:
            return 0.0
        linear = max(self.linear_s_per_token * tokens, self.weights_s)
        # a chunk reads the keys before it once; arithmetic limits long chunks, and this read limits short ones
        attention = self.pair_s * prefill_pairs + self.read_s_per_token * context_tokens
        overhead = self.prefill_overhead_s if prefill_tokens else self.decode_overhead_s
        # bookkeeping covers the running sequences and the one in prefill
        booked = sequences + (prefill_tokens > 0)
        return linear + attention + self.sum_s_per_token * tokens + overhead + self.sequence_s * booked

    def prefill_s(self, new_tokens: float, cached_tokens: float = 0) -> float:
        """Time of a step that prefills one prompt and nothing else."""
        return self.step_s(new_tokens, pairs(new_tokens, cached_tokens), 0, 0)

    def decode_s(self, sequences: int, context_tokens: float) -> float:
        """Time of a step that generates one token for every sequence."""
        return self.step_s(0, 0.0, sequences, context_tokens)

    def decode_run_s(self, steps: int, sequences: int, context_tokens: int) -> float:
        """Time of `steps` steps of the same sequences, whose contexts grow by one token per step: a sum of
        `decode_s`."""
        grown = sequences * steps * (steps - 1) / 2
        return steps * self.decode_s(sequences, context_tokens) + self.read_s_per_token * grown


def pairs(new_tokens: float, before_tokens: float) -> float:
    """(token, context) pairs of a causal prefill of `new_tokens` after `before_tokens`."""
    return new_tokens * before_tokens + new_tokens * (new_tokens + 1) / 2
