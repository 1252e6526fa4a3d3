"""Reads tensors by name from a model folder's safetensors, in one file or in several with an index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from contracts.errors import ConfigError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class Weights(Protocol):
    """The source of a model's tensors."""

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The tensor of this name and shape, in this number format. Raises ConfigError that names it."""
        ...

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor in its stored number format, or in float32. Raises ConfigError that names it."""
        ...

    def require_all_taken(self) -> None:
        """Raise ConfigError that names tensors that were not taken."""
        ...


class Checkpoint:
    """The tensors of one folder. Every tensor taken must exist, with the shape that the model's config implies."""

    def __init__(self, folder: Path, *, decoder_alone: bool = False) -> None:
        """decoder_alone: read only the decoder's tensors, by their names in a plain decoder. The checkpoint may be a
        decoder without a head, whose names begin without `model.`, or a model that also takes images. Raises
        ConfigError that names the missing or broken file."""
        self._folder = folder
        self._taken: set[str] = set()
        # the library's reader has no types
        self._files: dict[Path, Any] = {}
        index = folder / INDEX
        if (folder / SINGLE).exists():
            self._paths = dict.fromkeys(self._open(folder / SINGLE).keys(), folder / SINGLE)
        elif index.exists():
            self._paths = _read_index(index)
        else:
            raise ConfigError(f"{folder}: neither {SINGLE} nor {INDEX} exists; only safetensors weights are read")
        self._stored = {name: name for name in self._paths}
        """The names in the files, by the model's names."""
        if decoder_alone:
            self._stored = _names_of_decoder(self._paths)
            self._paths = {name: self._paths[stored] for name, stored in self._stored.items()}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The tensor, converted to `dtype`. Raises ConfigError that names it if it is missing or has another shape."""
        return self.read(name, shape).to(dtype)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor in the checkpoint's own number format. Raises ConfigError like `take`."""
        tensor = self.stored(name)
        path = self._paths[name]
        if tuple(tensor.shape) != shape:
            raise ConfigError(f"{path}: {name} has shape {tuple(tensor.shape)}; config.json implies {shape}")
        if not tensor.is_floating_point():
            raise ConfigError(f"{path}: {name} holds {tensor.dtype}; only floating-point weights are supported")
        self._taken.add(name)
        return tensor

    def stored(self, name: str) -> Tensor:
        """The tensor, with any shape and type. Raises ConfigError if it is missing or cannot be read."""
        path = self._paths.get(name)
        if path is None:
            raise ConfigError(f"{self._folder}: the tensor {name} is missing; the checkpoint does not fit config.json")
        try:
            tensor: Tensor = self._open(path).get_tensor(self._stored[name])
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{path}: the tensor {name} cannot be read: {error}") from None
        return tensor

    def names_by_file(self) -> dict[str, list[str]]:
        """The names of the tensors in each file, by the file's name."""
        found: dict[str, list[str]] = {}
        for name, path in self._paths.items():
            found.setdefault(path.name, []).append(name)
        return found

    def require_all_taken(self) -> None:
        """Raise ConfigError that names tensors that were not taken, because a model without a part is another model."""
        # older folders keep a table that config.json determines, and folders with tied embeddings may repeat them
        spare = ("lm_head.weight", "rotary_emb.inv_freq")
        left = sorted(name for name in self._paths.keys() - self._taken if not name.endswith(spare))
        if left:
            raise ConfigError(
                f"{self._folder}: config.json implies no tensor {left[0]} ({len(left)} such); the checkpoint does not "
                "fit config.json"
            )

    def _open(self, path: Path) -> Any:
        file = self._files.get(path)
        if file is None:
            try:
                file = self._files[path] = safe_open(str(path), framework="pt")
            except FileNotFoundError:
                raise ConfigError(f"{path}: file not found, though {INDEX} names it") from None
            except (SafetensorError, OSError) as error:
                raise ConfigError(f"{path}: not a whole safetensors file: {error}") from None
        return file


def _names_of_decoder(stored: Iterable[str]) -> dict[str, str]:
    """The names in the files by the decoder's own names."""
    names = list(stored)
    if "embed_tokens.weight" in names:
        return {f"model.{name}": name for name in names}
    for outer, inner in (("language_model.", ""), ("model.language_model.", "model.")):
        if any(name.startswith(outer) for name in names):
            own = {inner + name.removeprefix(outer): name for name in names if name.startswith(outer)}
            return own | {name: name for name in names if name == "lm_head.weight"}
    return {name: name for name in names}


def _read_index(path: Path) -> dict[str, Path]:
    class Index(msgspec.Struct):
        weight_map: dict[str, str]

    try:
        index = msgspec.json.decode(path.read_bytes(), type=Index)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: not a weight index: {error}") from None
    for name, file in index.weight_map.items():
        if Path(file).name != file:
            raise ConfigError(f"{path}: {name} points outside the folder: {file!r}")
    return {name: path.parent / file for name, file in index.weight_map.items()}
