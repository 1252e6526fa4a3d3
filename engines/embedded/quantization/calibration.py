"""Finds the largest input of every linear layer over a text, and the largest keys and values, for static scales."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.models.linears import PlainLinears
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.passages import Passage
from engines.embedded.quantization.passes import logits_of
from engines.layers.linear import Projection


class Calibration(msgspec.Struct, frozen=True):
    """The content of a calibration file."""

    model: str
    tokens: int
    """Number of tokens that were measured."""
    amax: dict[str, float]
    """Largest magnitude of each layer's input."""
    keys: tuple[float, ...] = ()
    """Largest magnitude of each layer's keys as stored, hence rotated. Empty in older files."""
    values: tuple[float, ...] = ()


class _Observed:
    def __init__(self, inner: Projection) -> None:
        self._inner = inner
        self.amax = 0.0

    def __call__(self, x: Tensor) -> Tensor:
        self.amax = max(self.amax, float(x.abs().max()))
        return self._inner(x)


class _ObservedMemory:
    """Observes keys and values in place of rounding, without changing them."""

    def __init__(self) -> None:
        self.keys = self.values = 0.0

    def __call__(self, heads: Tensor) -> Tensor:
        keys, values = heads.abs().amax((0, 2, 3)).tolist()
        self.keys, self.values = max(self.keys, keys), max(self.values, values)
        return heads


class _ObservedLinears:
    wide = False

    def __init__(self, dtype: torch.dtype) -> None:
        self._plain = PlainLinears(dtype)
        self.layers: dict[str, _Observed] = {}

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        layer = self.layers[name] = _Observed(self._plain.make(name, weight, bias))
        return layer


def calibrate(folder: Path, passages: Iterable[Passage]) -> Calibration:
    """Run the model over `passages` in float32. Raises ConfigError for a folder without a supported model."""
    linears = _ObservedLinears(torch.float32)
    model = load_model(folder, "float32", lambda _: linears)
    memory = [_ObservedMemory() for _ in range(model.config.num_hidden_layers)]
    for layer, observed in enumerate(memory):
        model.keep_rounded(observed, layer)
    tokens = 0
    for passage in passages:
        logits_of(model, passage.ids)
        tokens += len(passage.ids)
    return Calibration(
        folder.resolve().name,
        tokens,
        {name: linear.amax for name, linear in linears.layers.items()},
        tuple(observed.keys for observed in memory),
        tuple(observed.values for observed in memory),
    )


def read_calibration(path: str) -> Calibration:
    """Read a calibration file. Raises ConfigError that names the file if it is invalid."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: not a calibration file: {error}", param="engine.fp8.calibration") from None
