"""A model whose parts can be rounded and restored while it stays loaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from engines.embedded.models.linears import PlainLinears
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.passages import Passage
from engines.embedded.quantization.passes import logits_of_all
from engines.layers.linear import Projection
from tools.quantization.scheme import EMBEDDING, Rounder, Scheme

SCALE_BYTES = 4


class Part(msgspec.Struct, frozen=True):
    """A part of a model that can be rounded alone."""

    name: str
    """`layers.<number>.<kind>`, `embedding` or `head`."""
    rounded_bytes: int
    """For keys and values, the size of one sequence of the longest context."""
    kept_bytes: int

    @property
    def kind(self) -> str:
        """qkv, output, gate_up, down, kv, embedding or head."""
        return self.name.rpartition(".")[2]


class SwitchedModel:
    """A model whose parts are not rounded at first."""

    def __init__(self, folder: Path, scheme: Scheme, dtype: str) -> None:
        """dtype: of the parts that are not rounded. Raises ConfigError about the folder or the calibration."""
        self._rounder = Rounder(scheme)
        made: list[_Switches] = []

        def linears(of: torch.dtype) -> _Switches:
            made.append(_Switches(self._rounder, of))
            return made[0]

        self._model = load_model(folder, dtype, linears)
        self._rounded = made[0].rounded
        self._embedding = self._model.embedding
        self._rounded_embedding = self._rounder.embedding(self._embedding)
        config = self._model.config
        rows, columns = self._embedding.shape
        table = Part(EMBEDDING, self._rounder.bytes((rows, columns)), made[0].kept_bytes_each * rows * columns)
        kept = config.max_position_embeddings * config.kv_elements_per_token // config.num_hidden_layers
        scales = 2 * SCALE_BYTES * config.max_position_embeddings
        self.parts: tuple[Part, ...] = (
            *made[0].parts,
            table,
            *(
                Part(f"layers.{layer}.kv", kept + scales, kept * made[0].kept_bytes_each)
                for layer in range(config.num_hidden_layers)
            ),
        )
        """All parts of the model."""

    def round(self, names: Collection[str]) -> None:
        """Round these parts from now on, and no others."""
        self._rounded.clear()
        self._rounded.update(names)
        self._model.embedding = self._rounded_embedding if EMBEDDING in names else self._embedding
        for layer in range(self._model.config.num_hidden_layers):
            rounding = self._rounder.keys_and_values if f"layers.{layer}.kv" in names else None
            self._model.keep_rounded(rounding, layer)

    def log_probabilities(self, passages: Sequence[Passage]) -> list[Tensor]:
        """Log probabilities at the measured positions of each passage, (positions, vocabulary)."""
        logits = logits_of_all(self._model, [passage.ids for passage in passages])
        return [own[passage.start : -1].log_softmax(-1) for own, passage in zip(logits, passages, strict=True)]


class _Switch:
    """A layer that computes rounded while its name is in `rounded`, else plainly."""

    def __init__(self, name: str, plain: Projection, changed: Projection, rounded: set[str]) -> None:
        self._name = name
        self._plain = plain
        self._changed = changed
        self._rounded = rounded

    def __call__(self, x: Tensor) -> Tensor:
        return self._changed(x) if self._name in self._rounded else self._plain(x)


class _Switches:
    wide = False

    def __init__(self, rounder: Rounder, dtype: torch.dtype) -> None:
        self.rounded: set[str] = set()
        self.parts: list[Part] = []
        self.kept_bytes_each = 0
        """Bytes of a number in the checkpoint."""
        self._rounder = rounder
        self._plain = PlainLinears(dtype, native=False)

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        rows, columns = weight.shape
        self.kept_bytes_each = weight.dtype.itemsize
        self.parts.append(Part(name, self._rounder.bytes((rows, columns)), weight.numel() * weight.dtype.itemsize))
        plain = self._plain.make(name, weight, bias)
        return _Switch(name, plain, self._rounder.linear(name, weight, bias), self.rounded)
