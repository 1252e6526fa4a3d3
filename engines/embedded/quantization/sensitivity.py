"""How much each layer's FP8 rounding changes what the model says: the report that tells which layers to keep.

One layer is rounded at a time and the others are not; the distance is KL(original || rounded) per token over held-out
text. Distances of single layers only roughly add up, so what is kept is measured again together.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from engines.embedded.config import Fp8Config
from engines.embedded.models.linears import HEAD, PlainLinears
from engines.embedded.models.llama import Llama
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.linears import Fp8Linears
from engines.embedded.quantization.passages import Passage
from engines.embedded.quantization.passes import logits_of
from engines.layers.fp8 import Fp8Linear
from engines.layers.linear import Projection


class Distance(msgspec.Struct, frozen=True):
    """Between the model as it is and with some layers rounded."""

    kl_per_token: float
    """Nats."""
    same_top: float
    """Share of positions whose likeliest token stays."""


class LayerReport(msgspec.Struct, frozen=True):
    """One layer rounded alone."""

    name: str
    distance: Distance
    signal_to_noise_db: float
    """Of its weights alone."""


class Report(msgspec.Struct, frozen=True):
    """The worst layer comes first."""

    model: str
    tokens: int
    """Positions at which the two were compared."""
    config: Fp8Config
    layers: tuple[LayerReport, ...]
    all_rounded: Distance
    threshold: float
    """KL per token that the layers which stay rounded must not exceed together."""
    keep: tuple[str, ...]
    """The fewest worst layers whose keeping meets the threshold; all of them when nothing else does."""
    kept: Distance
    """With `keep` kept."""


class _Switch:
    """A layer that computes plainly or rounded, as its name is in `rounded`."""

    def __init__(self, name: str, plain: Projection, changed: Fp8Linear, rounded: set[str]) -> None:
        self._name = name
        self._plain = plain
        self._rounded = rounded
        self.changed = changed

    def __call__(self, x: Tensor) -> Tensor:
        return self.changed(x) if self._name in self._rounded else self._plain(x)


class _Switches:
    """Linear layers that can be rounded and restored while the model stays loaded."""

    wide = False

    def __init__(self, config: Fp8Config, dtype: torch.dtype) -> None:
        self.rounded: set[str] = set()
        self.layers: dict[str, _Switch] = {}
        self._plain = PlainLinears(dtype)
        self._changed = Fp8Linears(msgspec.structs.replace(config, keep=()), dtype)

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        plain = self._plain.make(name, weight, bias)
        if name == HEAD:
            return plain
        changed = self._changed.make(name, weight, bias)
        assert isinstance(changed, Fp8Linear)
        layer = self.layers[name] = _Switch(name, plain, changed, self.rounded)
        return layer


def measure(folder: Path, passages: Sequence[Passage], config: Fp8Config, threshold: float, dtype: str) -> Report:
    """Round every layer of the model in `folder` alone, then all, then all but the worst until `threshold` holds.

    Takes a pass over the text per layer, and some more. Raises ConfigError about the folder or the calibration.
    """
    made: list[_Switches] = []

    def linears(of: torch.dtype) -> _Switches:
        made.append(_Switches(config, of))
        return made[0]

    model = load_model(folder, dtype, linears)
    switches = made[0]
    reference = [_log_probabilities(model, passage) for passage in passages]

    def distance(names: set[str]) -> Distance:
        switches.rounded.clear()
        switches.rounded.update(names)
        return _distance(model, passages, reference)

    every = set(switches.layers)
    layers = [
        LayerReport(name, distance({name}), switch.changed.signal_to_noise_db)
        for name, switch in switches.layers.items()
    ]
    layers.sort(key=lambda layer: layer.distance.kl_per_token, reverse=True)
    all_rounded = kept = distance(every)
    keep: list[str] = []
    for layer in layers:
        if kept.kl_per_token <= threshold:
            break
        keep.append(layer.name)
        kept = distance(every - set(keep))
    return Report(
        folder.resolve().name,
        sum(map(len, reference)),
        config,
        tuple(layers),
        all_rounded,
        threshold,
        tuple(keep),
        kept,
    )


def _distance(model: Llama, passages: Sequence[Passage], reference: Sequence[Tensor]) -> Distance:
    total, same, tokens = 0.0, 0, 0
    for passage, before in zip(passages, reference, strict=True):
        after = _log_probabilities(model, passage)
        total += float((before.exp() * (before - after)).sum(dtype=torch.float64))
        same += int((before.argmax(-1) == after.argmax(-1)).sum())
        tokens += len(before)
    return Distance(total / tokens, same / tokens)


def _log_probabilities(model: Llama, passage: Passage) -> Tensor:
    """(positions that count, vocabulary)"""
    return logits_of(model, passage.ids)[passage.start : -1].log_softmax(-1)
