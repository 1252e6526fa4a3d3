"""A model that is rounded by a scheme once and for all, for an engine to run."""

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
        """Raises ConfigError when the calibration cannot be read."""
        # our own kernels compute layers of one kind, and keep embedding, keys and values as they are
        native = scheme.name == "int8" and not scheme.keep and not scheme.also
        self.dtype = "bfloat16" if scheme.name == "int8" else "auto"
        """Of what is not rounded, as the engine has it."""
        self.wide = False
        self._native = native
        self._scheme = scheme
        self._rounder = Rounder(scheme, native=native)
        self._plain = PlainLinears(torch.bfloat16, native=False)

    def of(self, dtype: torch.dtype) -> RoundedLinears:
        """These, with plain layers in a number format."""
        self._plain = PlainLinears(dtype, native=self._native)
        self.wide = self._native and self._plain.wide
        return self

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        """A layer of this weight, rounded where the scheme rounds it."""
        rounds = self._scheme.rounds(name)
        return self._rounder.linear(name, weight, bias) if rounds else self._plain.make(name, weight, bias)

    def finish(self, model: Llama) -> None:
        """Round what is no layer."""
        if self._scheme.rounds(EMBEDDING):
            model.embedding = self._rounder.embedding(model.embedding)
        for layer in range(model.config.num_hidden_layers):
            if self._scheme.rounds(f"layers.{layer}.kv"):
                model.keep_rounded(self._rounder.keys_and_values, layer)
