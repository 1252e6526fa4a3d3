"""Cards, models and nodes that are modelled. Dimensions are published; nothing here is measured by us."""

from __future__ import annotations

from contracts.errors import ConfigError
from engines.performance.hardware import Gpu
from engines.performance.model_shape import ModelShape
from engines.performance.roofline import Node

H100 = Gpu("H100", 1_979e12, 989e12, 80e9, 3.35e12, 450e9)
H200 = Gpu("H200", 1_979e12, 989e12, 141e9, 4.8e12, 450e9)

LLAMA_70B = ModelShape("llama-70b", 70.6e9, 80, 8_192, 64, 8, 128)
LLAMA_8B = ModelShape("llama-8b", 8.03e9, 32, 4_096, 32, 8, 128)
LLAMA_7B = ModelShape("llama-7b", 6.74e9, 32, 4_096, 32, 32, 128)
QWEN_32B_BF16 = ModelShape("qwen-32b-bf16", 32.8e9, 64, 5_120, 64, 8, 128, weight_bytes=2, kv_bytes=2)


def nodes() -> dict[str, Node]:
    """By name, such as `70b-fp8-8xh100`."""
    made = [
        Node("70b-fp8-8xh100", H100, 8, LLAMA_70B),
        Node("70b-fp8-4xh100", H100, 4, LLAMA_70B),
        Node("70b-fp8-2xh100", H100, 2, LLAMA_70B),
        Node("70b-fp8-8xh200", H200, 8, LLAMA_70B),
        Node("70b-fp8-4xh200", H200, 4, LLAMA_70B),
        Node("8b-fp8-1xh100", H100, 1, LLAMA_8B),
        Node("8b-fp8-1xh200", H200, 1, LLAMA_8B),
        Node("7b-fp8-1xh100", H100, 1, LLAMA_7B),
        Node("32b-bf16-2xh100", H100, 2, QWEN_32B_BF16),
    ]
    return {node.name: node for node in made}


def node(name: str) -> Node:
    """Raises ConfigError for a name that is not modelled."""
    known = nodes()
    if name not in known:
        raise ConfigError(f"no modelled node named {name!r}; known: {', '.join(known)}", param="node")
    return known[name]
