"""The quantizers' formats: how an FP8 checkpoint names the rounded modules, and the shape of its scales.

modelopt: TensorRT Model Optimizer's, read by SGLang (`modelopt_fp8`), TensorRT-LLM and vLLM, with one fixed scale for a
matrix and one for its inputs. llm-compressor: compressed-tensors' `float-quantized`, read by SGLang and vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

Toolchain = Literal["modelopt", "llm-compressor"]
PRODUCER = "slipstream"


def quantization_config(toolchain: Toolchain, ignored: Sequence[str], *, static: bool, fp8_kv: bool) -> dict[str, Any]:
    """`quantization_config` of config.json. ignored: modules that are not rounded; static: one scale per matrix and one
    for its inputs, else one per output channel and a dynamic one per token."""
    weights = _format("tensor" if static else "channel", dynamic=False)
    inputs = _format("tensor" if static else "token", dynamic=not static)
    config: dict[str, Any] = {
        "ignore": list(ignored),
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs},
        },
        "kv_cache_scheme": _format("tensor", dynamic=False) if fp8_kv else None,
    }
    if toolchain == "modelopt":
        return {"quant_method": "modelopt", "quant_algo": "FP8", "producer": {"name": PRODUCER}, **config}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        **config,
    }


def separate_config(ignored: Sequence[str], *, fp8_kv: bool) -> dict[str, Any]:
    """hf_quant_config.json, which TensorRT-LLM reads before config.json. Only ModelOpt has it."""
    return {
        "producer": {"name": PRODUCER, "version": "1"},
        "quantization": {
            "quant_algo": "FP8",
            "kv_cache_quant_algo": "FP8" if fp8_kv else None,
            "exclude_modules": list(ignored),
        },
    }


def scale(toolchain: Toolchain, value: Tensor) -> Tensor:
    """A scale in the shape that engines read. value: (), or (out,) with one per output channel."""
    if value.dim():
        return value[:, None]
    return value if toolchain == "modelopt" else value[None]


def memory_scales(toolchain: Toolchain, layer: int) -> tuple[str, str]:
    """The names of the scales of a layer's keys and values."""
    attention = f"model.layers.{layer}.self_attn"
    if toolchain == "modelopt":
        return f"{attention}.k_proj.k_scale", f"{attention}.v_proj.v_scale"
    return f"{attention}.k_scale", f"{attention}.v_scale"


def _format(strategy: str, *, dynamic: bool) -> dict[str, Any]:
    return {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True, "dynamic": dynamic}
