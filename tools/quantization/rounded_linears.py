"""Loads a model with a scheme's rounding, for an engine to run."""

from __future__ import annotations

import torch
from torch import Tensor

from engines.embedded.models.linears import PlainLinears
from engines.embedded.models.llama import Llama
from engines.layers.linear import Projection
from tools.quantization.scheme import EMBEDDING, Rounder, Scheme


class RoundedLinears:
    """Makes the layers that a scheme rounds, and plain ones for the rest."""

    def __init__(self, scheme: Scheme) -> None:
        """Raises ConfigError if the calibration cannot be read."""
        # the native kernels compute layers of one kind, and do not round embedding, keys and values
        native = scheme.name == "int8" and not scheme.keep and not scheme.also
        self.dtype = "bfloat16" if scheme.name == "int8" else "auto"
        """Number format of the parts that are not rounded, as in the engine."""
        self.wide = False
        self._native = native
        self._scheme = scheme
        self._rounder = Rounder(scheme, native=native)
        self._plain = PlainLinears(torch.bfloat16, native=False)

    def of(self, dtype: torch.dtype) -> RoundedLinears:
        """These layers, with the plain ones in a number format."""
        self._plain = PlainLinears(dtype, native=self._native)
        self.wide = self._native and self._plain.wide
        return self

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        """A layer of this weight, rounded if the scheme rounds it."""
        rounds = self._scheme.rounds(name)
        return self._rounder.linear(name, weight, bias) if rounds else self._plain.make(name, weight, bias)

    def finish(self, model: Llama) -> None:
        """Round the parts that are not layers."""
        if self._scheme.rounds(EMBEDDING):
            model.embedding = self._rounder.embedding(model.embedding)
        for layer in range(model.config.num_hidden_layers):
            if self._scheme.rounds(f"layers.{layer}.kv"):
                model.keep_rounded(self._rounder.keys_and_values, layer)
