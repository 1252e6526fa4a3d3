"""Writes a copy of a model folder with its layers' matrices in FP8, as the engines of a fleet load it.

The numbers are those that `engines.layers.fp8` computes with, so the gate's verdict on a scheme holds for the
checkpoint. With one scale per matrix, matrices that engines fuse share a scale: engines round parts of unequal scales a
second time. One file of the model is in memory at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.models.checkpoint import INDEX, Checkpoint
from engines.embedded.models.config import ModelConfig
from engines.embedded.quantization.calibration import Calibration
from engines.layers.fp8 import rounded, scale_of
from tools.quantization import toolchains
from tools.quantization.keep_list import KeepList, modules_of
from tools.quantization.scheme import Scheme
from tools.quantization.toolchains import Toolchain

GROUPS = ("qkv", "output", "gate_up", "down")
TILE = 16
"""Both sides of a matrix must be multiples of it for the FP8 matrix kernels of GPUs."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


class Written(msgspec.Struct, frozen=True):
    """The result of writing a checkpoint."""

    rounded: int
    """Number of matrices."""
    ignored: tuple[str, ...]
    """Unchanged modules."""


def write(
    folder: Path,
    output: Path,
    toolchain: Toolchain,
    calibration: Calibration | None,
    keep: KeepList | None,
    *,
    fp8_kv_cache: bool = False,
) -> Written:
    """Write an FP8 checkpoint. calibration: gives fixed scales, one per matrix and one for its inputs; None for one
    scale per output channel and dynamic scales per token for inputs. fp8_kv_cache: state that keys and values are kept
    in FP8, with the calibration's scales.

    Raises ConfigError if the output holds files, the keep list was measured with other scales or forbids the KV cache,
    the calibration is missing or another model's, or a matrix has a side that FP8 kernels cannot take.
    """
    shape = ModelConfig.read(folder)
    _require_consistent(toolchain, calibration, keep, fp8_kv_cache)
    if calibration is not None:
        _require_of(calibration, shape, fp8_kv_cache)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"--output: {output} must be a new or empty folder", param="output")
    parts = [f"layers.{layer}.{group}" for layer in range(shape.num_hidden_layers) for group in GROUPS]
    kept = set(() if keep is None else keep.parts)
    modules = {name: part for part in parts if part not in kept for name in modules_of(part)}
    if not modules:
        raise ConfigError("every part of the model is in the keep list: there is nothing to write in FP8")
    ignored = ("lm_head", *(name for part in parts if part in kept for name in modules_of(part)))
    _require_tiles(shape, modules)
    source = Checkpoint(folder)
    stored = {name for names in source.names_by_file().values() for name in names}
    for name in modules:
        if f"{name}.weight" not in stored:
            raise ConfigError(
                f"{folder}: it has no tensor {name}.weight; FP8 is written for models whose projections are tensors of "
                "their own, named like Llama's"
            )
    scales = {} if calibration is None else _shared_scales(source, modules)
    output.mkdir(parents=True, exist_ok=True)
    memory = _memory_scales(toolchain, calibration) if calibration is not None and fp8_kv_cache else {}
    index: dict[str, str] = {}
    total_bytes = 0
    for file, names in source.names_by_file().items():
        tensors: dict[str, Tensor] = {}
        for name in names:
            module = name.removesuffix(".weight")
            if name.endswith(".weight") and module in modules:
                tensors |= _rounded(toolchain, module, source.stored(name), scales.get(modules[module]))
                if calibration is not None:
                    amax = torch.tensor(calibration.amax[modules[module]])
                    tensors[f"{module}.input_scale"] = toolchains.scale(toolchain, scale_of(amax))
            else:
                tensors[name] = source.stored(name)
        tensors |= memory
        memory = {}
        save_file(tensors, str(output / file), metadata={"format": "pt"})
        (output / file).chmod(0o644)  # the library makes it readable only to its owner
        index |= dict.fromkeys(tensors, file)
        total_bytes += sum(tensor.nbytes for tensor in tensors.values())
    if len(set(index.values())) > 1 or (folder / INDEX).exists():
        _write(output / INDEX, {"metadata": {"total_size": total_bytes}, "weight_map": index})
    for path in folder.iterdir():
        if path.is_file() and path.suffix not in WEIGHTS and path.name not in (INDEX, "config.json"):
            shutil.copyfile(path, output / path.name)
    # last, so that an incomplete folder is not a model
    config = msgspec.json.decode((folder / "config.json").read_bytes())
    config["quantization_config"] = toolchains.quantization_config(
        toolchain, ignored, static=calibration is not None, fp8_kv=fp8_kv_cache
    )
    if toolchain == "modelopt":
        _write(output / "hf_quant_config.json", toolchains.separate_config(ignored, fp8_kv=fp8_kv_cache))
    _write(output / "config.json", config)
    return Written(len(modules), ignored)


def _require_consistent(
    toolchain: Toolchain, calibration: Calibration | None, keep: KeepList | None, fp8_kv_cache: bool
) -> None:
    if calibration is None and (toolchain == "modelopt" or fp8_kv_cache):
        what = "modelopt's scales of inputs are" if toolchain == "modelopt" else "scales of keys and values are"
        raise ConfigError(
            f"--calibration: {what} fixed beforehand: give what "
            "`slipstream tools quantization calibrate --output` wrote",
            param="calibration",
        )
    if keep is None:
        return
    static = calibration is not None
    wanted = Scheme("fp8", "tensor", "tensor") if static else Scheme("fp8", "channel", "token")
    measured = keep.scheme
    if (measured.name, measured.weights, measured.activations) != (wanted.name, wanted.weights, wanted.activations):
        raise ConfigError(
            f"--keep-list: it was measured for {measured.name} with weights {measured.weights} and activations "
            f"{measured.activations}; this checkpoint has {wanted.name}, {wanted.weights} and {wanted.activations}: "
            f"measure with --weights {wanted.weights} --activations {wanted.activations}",
            param="keep_list",
        )
    if fp8_kv_cache and keep.keys_and_values:
        layers = ", ".join(map(str, keep.keys_and_values))
        raise ConfigError(
            f"--kv-cache: the keep list names keys and values of layers {layers}, and engines keep all layers' in one "
            "format: use --kv-cache auto",
            param="kv_cache",
        )


def _require_of(calibration: Calibration, shape: ModelConfig, fp8_kv_cache: bool) -> None:
    parts = {f"layers.{layer}.{group}" for layer in range(shape.num_hidden_layers) for group in GROUPS}
    if parts != {name for name in calibration.amax if name.startswith("layers.")}:
        raise ConfigError(
            f"--calibration: it is of {calibration.model}, whose layers are others; calibrate this model",
            param="calibration",
        )
    if fp8_kv_cache and len(calibration.keys) != shape.num_hidden_layers:
        raise ConfigError("--calibration: it has no keys and values: calibrate again", param="calibration")


def _require_tiles(shape: ModelConfig, modules: Mapping[str, str]) -> None:
    heads, kv_heads = (count * shape.head_dim for count in (shape.num_attention_heads, shape.num_key_value_heads))
    hidden, ff = shape.hidden_size, shape.intermediate_size
    sides = {"qkv": (heads, kv_heads, hidden), "output": (heads, hidden), "gate_up": (ff, hidden), "down": (ff, hidden)}
    for module, part in modules.items():
        for side in sides[part.rsplit(".", 1)[1]]:
            if side % TILE:
                raise ConfigError(
                    f"{module} has a side of {side}, and FP8 kernels take multiples of {TILE}: keep {part} "
                    f"(sensitivity --keep {part} --export FILE, then --keep-list FILE)"
                )


def _shared_scales(source: Checkpoint, modules: Mapping[str, str]) -> dict[str, Tensor]:
    """One scale for each part."""
    amax: dict[str, Tensor] = {}
    for module, part in modules.items():
        own = source.stored(f"{module}.weight").float().abs().max()
        amax[part] = own if part not in amax else torch.maximum(own, amax[part])
    return {part: scale_of(value) for part, value in amax.items()}


def _rounded(toolchain: Toolchain, module: str, weight: Tensor, shared: Tensor | None) -> dict[str, Tensor]:
    wide = weight.float()
    scale = scale_of(wide.abs().amax(1)) if shared is None else shared
    # exact: the values are already E4M3 numbers
    values = rounded(wide, scale[:, None] if shared is None else scale).to(torch.float8_e4m3fn)
    return {f"{module}.weight": values, f"{module}.weight_scale": toolchains.scale(toolchain, scale.clone())}


def _memory_scales(toolchain: Toolchain, calibration: Calibration) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for layer, both in enumerate(zip(calibration.keys, calibration.values, strict=True)):
        for name, amax in zip(toolchains.memory_scales(toolchain, layer), both, strict=True):
            found[name] = toolchains.scale(toolchain, scale_of(torch.tensor(amax)))
    return found


def _write(path: Path, value: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
