"""Decides whether a machine can run a model at all; a refusal shows its arithmetic and what would suffice.

The planner and the renderer of launch commands both use it, so that they refuse the same settings with the same words.
"""

from __future__ import annotations

import msgspec

from contracts.errors import ConfigError
from engines.performance.precision import Precision
from engines.performance.roofline import Node

GB = 1e9
GPU_COUNTS = (1, 2, 4, 8, 16)
"""Numbers of GPUs that a refusal may propose."""


class PrecisionNotSupported(ConfigError):
    """The GPU has no units for the precision of the weights."""


class TensorParallelAcrossNodes(ConfigError):
    """A layer would be spread over more GPUs than one machine links."""


class HeadsNotDivisible(ConfigError):
    """The attention heads cannot be divided evenly among the GPUs."""


class WeightsDoNotFit(ConfigError):
    """The weights are larger than the memory that an engine may fill."""


class ContextBeyondKv(ConfigError):
    """One request of this length needs more keys and values than fit in memory."""


def require_fit(node: Node, context_tokens: int) -> None:
    """Refuse a machine on which one request of `context_tokens` cannot be served.

    Raises PrecisionNotSupported, TensorParallelAcrossNodes, HeadsNotDivisible, WeightsDoNotFit or ContextBeyondKv.
    """
    gpu, model, memory = node.gpu, node.model, node.memory
    if gpu.peak_flops(model.weight_bytes) == 0:
        requested = next(each.value for each in Precision if each.weight_bytes == model.weight_bytes)
        known = " or ".join(each.value for each in Precision if gpu.peak_flops(each.weight_bytes))
        raise PrecisionNotSupported(
            f"{gpu.name} has no units for {requested}: choose {known}, or another GPU", param="precision"
        )
    if node.gpus > gpu.per_node:
        raise TensorParallelAcrossNodes(
            f"tensor parallelism of {node.gpus} spans machines: {gpu.per_node} {gpu.name} share one NVLink domain, and "
            f"the two sums of each layer over the network would delay every step; use at most {gpu.per_node}",
            param="tensor_parallel",
        )
    if model.heads % node.gpus:
        raise HeadsNotDivisible(
            f"{model.name} has {model.heads} attention heads, which {node.gpus} GPUs cannot share evenly; "
            f"use a divisor of {model.heads}",
            param="tensor_parallel",
        )
    if memory.kv_bytes <= 0:
        usable = memory.total_bytes - memory.reserve_bytes
        raise WeightsDoNotFit(
            f"the weights of {model.name} do not fit: {model.parameters / 1e9:.1f} billion parameters × "
            f"{model.weight_bytes:g} bytes = {_gb(model.weights_bytes)}, but {node.gpus} × {gpu.name} of "
            f"{_gb(gpu.memory_bytes)} have {_gb(usable)} after a reserve of "
            f"{_gb(memory.reserve_bytes)}{_adapters(node, ' and')}; {_enough(node)}",
            param="tensor_parallel",
        )
    if context_tokens > memory.kv_tokens:
        raise ContextBeyondKv(
            f"a context of {context_tokens:,} tokens × {memory.kv_bytes_per_token:,.0f} bytes needs "
            f"{_gb(context_tokens * memory.kv_bytes_per_token)} of keys and values, but {_gb(memory.total_bytes)} − "
            f"{_gb(memory.reserve_bytes)} reserve − {_gb(memory.weights_bytes)} weights{_adapters(node, ' −')} leave "
            f"{_gb(memory.kv_bytes)}: "
            f"at most {memory.kv_tokens:,} tokens; {_enough_for(node, context_tokens)}",
            param="context_tokens",
        )


def _adapters(node: Node, joined: str) -> str:
    return f"{joined} {_gb(node.adapter_bytes)} for LoRA adapters" if node.adapter_bytes else ""


def _enough(node: Node) -> str:
    """The next number of GPUs that would hold the weights, as the end of a sentence."""
    needed = (node.model.weights_bytes + node.adapter_bytes) / (node.gpu.memory_bytes * node.usable_memory)
    for gpus in GPU_COUNTS:
        if needed < gpus <= node.gpu.per_node and node.model.heads % gpus == 0:
            return f"{gpus} GPUs would hold them"
    return f"not even {_all_gpus(node)} would: choose fewer bytes per weight, or GPUs with more memory"


def _enough_for(node: Node, context_tokens: int) -> str:
    """The next number of GPUs that would hold the context, as the end of a sentence."""
    for gpus in GPU_COUNTS:
        if node.gpus < gpus <= node.gpu.per_node and node.model.heads % gpus == 0:
            # each GPU holds a part of the adapters, so a size in proportion is never too small
            more = msgspec.structs.replace(node, gpus=gpus, adapter_bytes=node.adapter_bytes * gpus / node.gpus)
            if context_tokens <= more.memory.kv_tokens:
                return f"{gpus} GPUs would hold it"
    return (
        f"not even {_all_gpus(node)} would hold it: shorten the context, or choose fewer bytes per weight or GPUs "
        "with more memory"
    )


def _all_gpus(node: Node) -> str:
    return "1 GPU" if node.gpu.per_node == 1 else f"{node.gpu.per_node} GPUs"


def _gb(size: float) -> str:
    return f"{size / GB:.1f} GB"
