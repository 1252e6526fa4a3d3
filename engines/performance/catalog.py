"""The GPUs, models and nodes that can be modelled, with published dimensions; none is our own measurement.

The GPUs' limits are from NVIDIA's data sheets of the SXM boards and count dense operations (the sheets count sparse
ones, twice as many). The chunks are those at which serving engines fill an A100 (2,048) and an H100 (8,192); B200's is
H100's times the ratio of their operations, rounded down to a power of two.
"""

from __future__ import annotations

from contracts.errors import ConfigError
from engines.performance.hardware import Gpu
from engines.performance.model_shape import ModelShape
from engines.performance.precision import Precision
from engines.performance.roofline import Node

A100 = Gpu("A100", 0.0, 312e12, 80e9, 2.039e12, 300e9, chunk_tokens=2_048)
H100 = Gpu("H100", 1_979e12, 989e12, 80e9, 3.35e12, 450e9)
H200 = Gpu("H200", 1_979e12, 989e12, 141e9, 4.8e12, 450e9)
B200 = Gpu("B200", 4_500e12, 2_250e12, 180e9, 8.0e12, 900e9, fp4_flops=9_000e12, chunk_tokens=16_384)
GPUS = {gpu.name.lower(): gpu for gpu in (A100, H100, H200, B200)}

LLAMA_70B = ModelShape("llama-70b", 70.6e9, 80, 8_192, 64, 8, 128)
LLAMA_8B = ModelShape("llama-8b", 8.03e9, 32, 4_096, 32, 8, 128)
LLAMA_7B = ModelShape("llama-7b", 6.74e9, 32, 4_096, 32, 32, 128)
QWEN_32B = ModelShape("qwen-32b", 32.8e9, 64, 5_120, 64, 8, 128)
MODELS = {model.name: model for model in (LLAMA_70B, LLAMA_8B, LLAMA_7B, QWEN_32B)}


def nodes() -> dict[str, Node]:
    """The modelled nodes by name, such as `70b-fp8-8xh100`."""
    modelled = [
        Node("70b-fp8-8xh100", H100, 8, LLAMA_70B),
        Node("70b-fp8-4xh100", H100, 4, LLAMA_70B),
        Node("70b-fp8-2xh100", H100, 2, LLAMA_70B),
        Node("70b-fp8-8xh200", H200, 8, LLAMA_70B),
        Node("70b-fp8-4xh200", H200, 4, LLAMA_70B),
        Node("8b-fp8-1xh100", H100, 1, LLAMA_8B),
        Node("8b-fp8-1xh200", H200, 1, LLAMA_8B),
        Node("7b-fp8-1xh100", H100, 1, LLAMA_7B),
        Node("32b-bf16-2xh100", H100, 2, Precision.BF16.of(QWEN_32B)),
    ]
    return {node.name: node for node in modelled}


def node(name: str) -> Node:
    """The modelled node named `name`. Raises ConfigError if no such node is modelled."""
    known = nodes()
    if name not in known:
        raise ConfigError(f"no modelled node named {name!r}; known: {', '.join(known)}", param="node")
    return known[name]
