"""Reads an adapter in PEFT's format, from adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from contracts.errors import InvalidField
from engines.embedded.lora.adapter import Adapter, LowRank
from engines.embedded.lora.adapter_files import AdapterFiles
from engines.embedded.lora.peft_config import PeftConfig
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.groups import Group, groups_of, in_pairs
from engines.embedded.models.llama import Llama
from engines.layers.linear import Linear

WEIGHTS = "adapter_model.safetensors"
MAX_HEADER_BYTES = 4 << 20
"""Limit of the file's header. The tensors of the largest models take a tenth of it."""
WIDEST_BYTES = 8
"""Bytes of the widest number format, float64."""
PREFIX = "base_model.model.model.layers"


def load_adapter(model: Llama, name: str, folder: Path, most_rank: int, load_number: int, root: str = "") -> Adapter:
    """Read an adapter of this model. load_number: see `Adapter`. root: see `LoraConfig`.

    Raises InvalidField that names the file and the field or tensor that is missing, unknown, or of a shape that does
    not match the model.
    """
    files = AdapterFiles(folder, root)
    config = PeftConfig.read(folder, files, most_rank)
    tensors = _Tensors(folder / WEIGHTS, files.read(WEIGHTS, _most_bytes(model.config, config.rank)), config.rank)
    updates: dict[tuple[int, str], LowRank] = {}
    wide = model.generation_dtype is not model.dtype
    size = 0
    for layer in range(model.config.num_hidden_layers):
        for group in groups_of(model.config):
            pair = _low_rank(tensors, config, group, layer, model.config)
            if pair is None:
                continue
            weights = [part.to(model.device, model.dtype) for part in pair]
            updates[layer, group.name] = LowRank(*(Linear(weight, wide=wide) for weight in weights))
            size += sum(weight.numel() * (weight.element_size() + 2 * wide) for weight in weights)
    tensors.require_all_taken()
    return Adapter(name, str(folder), config.rank, load_number, updates, size)


def _most_bytes(config: ModelConfig, rank: int) -> int:
    """The size limit of the file: that of an adapter of every projection."""
    numbers = sum(rank * (group.inputs + part.width) for group in groups_of(config) for part in group.parts)
    return MAX_HEADER_BYTES + numbers * config.num_hidden_layers * WIDEST_BYTES


def _low_rank(
    tensors: _Tensors, config: PeftConfig, group: Group, layer: int, model: ModelConfig
) -> tuple[Tensor, Tensor] | None:
    """The fused A, and the fused B times the scale; None if no projection of the group is adapted.

    up:   q │ B_q             │     down:  │ A_q │
          k │      B_k        │            │ A_k │
          v │           B_v   │            │ A_v │
    """
    downs: list[Tensor] = []
    ups: list[tuple[int, Tensor]] = []
    first = 0
    for part in group.parts:
        pair = tensors.pair(f"{PREFIX}.{layer}.{part.name}", group.inputs, part.width)
        if pair is not None:
            down, up = pair
            downs.append(down)
            ups.append((first, in_pairs(up, part, model)))
        first += part.width
    if not downs:
        return None
    fused = torch.zeros(first, len(ups) * config.rank)
    for at, (row, up) in enumerate(ups):
        fused[row : row + up.shape[0], at * config.rank : (at + 1) * config.rank] = up * config.scale
    return torch.cat(downs), fused


class _Tensors:
    """The tensors in the adapter's file, all of which must be taken."""

    def __init__(self, path: Path, content: bytes, rank: int) -> None:
        """path: for errors."""
        self._path = path
        self._rank = rank
        header_bytes = int.from_bytes(content[:8], "little")
        if header_bytes > MAX_HEADER_BYTES:
            raise InvalidField(
                f"{path}: its header must have at most {MAX_HEADER_BYTES:,} bytes; it has {header_bytes:,}",
                param=WEIGHTS,
            )
        try:
            # load from memory: a mapped file would end the process if another program truncated it
            self._rest = load(content)
        except (SafetensorError, LookupError, ValueError, TypeError, AttributeError) as error:
            raise InvalidField(f"{path}: cannot be read: {error}", param=WEIGHTS) from None

    def pair(self, module: str, inputs: int, outputs: int) -> tuple[Tensor, Tensor] | None:
        """A, (rank, inputs), and B, (outputs, rank), in float32; None if the adapter has neither."""
        names = (f"{module}.lora_A.weight", f"{module}.lora_B.weight")
        present = [name for name in names if name in self._rest]
        if not present:
            return None
        if len(present) < len(names):
            raise InvalidField(f"{self._path}: of {module} only {present[0]} is present", param=module)
        down, up = (self._rest.pop(name) for name in names)
        for name, tensor, shape in zip(names, (down, up), ((self._rank, inputs), (outputs, self._rank)), strict=True):
            if tuple(tensor.shape) != shape or not tensor.is_floating_point():
                raise InvalidField(
                    f"{self._path}: {name} is {tuple(tensor.shape)} of {tensor.dtype}; the model and r imply {shape} "
                    "of floating-point numbers",
                    param=name,
                )
            if not bool(tensor.float().isfinite().all()):
                raise InvalidField(f"{self._path}: {name} holds numbers that are not finite", param=name)
        return down.float(), up.float()

    def require_all_taken(self) -> None:
        if self._rest:
            name = min(self._rest)
            raise InvalidField(
                f"{self._path}: the model has no projection for {name} ({len(self._rest)} such); adapters may change "
                "the q, k, v, o, gate, up and down projections",
                param=name,
            )
