"""Models that are broken on purpose, as releases have been, which a gate must not pass.

A defect changes weights, the stored keys and values, how a question becomes a prompt, or where an answer ends; the rest
is the sound model. Most have a strength, to measure the weakest defect that a gate detects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec
import torch
from torch import Tensor

from engines.embedded.config import EngineConfig
from engines.embedded.models.linears import Linears
from engines.layers.attention import Rounding
from engines.layers.int8 import MAX
from engines.layers.linear import Projection
from engines.tokenizer.text_stream import TextStream
from engines.tokenizer.tokenizer import Tokenizer
from evals.slices.item import Gap, Message, Question

Weights = Callable[[Tensor], Tensor]
"""Maps (out, in) float32 to the weights of a broken file or kernel."""
Prompt = Callable[[Tokenizer, Sequence[Message]], list[int]]
Layout = Callable[[Tokenizer, Gap], list[int]]


def conversation(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The prompt of a conversation, as the engine renders it."""
    return list(tokenizer.chat_ids([dict(message) for message in messages]))


def filled(tokenizer: Tokenizer, gap: Gap) -> list[int]:
    """The prompt of a gap, as the gateway lays it out. Raises UnsupportedField for a model that cannot fill gaps."""
    return tokenizer.fill_ids(gap.prefix, gap.suffix)


def _the_same(end_ids: frozenset[int]) -> frozenset[int]:
    return end_ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class Defect:
    """One kind of defect. Fields that are not set leave the model sound."""

    name: str
    about: str
    strength: float | None = None
    """The strength, with the meaning that `about` states; None if it has none."""
    caught_by: tuple[str, ...] = ()
    """Slices of the shipped chat model that fell by five points or more when it was tried
    (docs/concepts/quantization-gate.md)."""
    quantization: Literal["none", "int8"] = "none"
    """The engine's setting."""
    layers: str = "*"
    """Layers whose weights change, such as `layers.1.down` or `layers.*.qkv`."""
    weights: Weights | None = None
    kept: Rounding | None = None
    """Rounds keys and values."""
    prompt: Prompt = conversation
    layout: Layout = filled
    """The prompt of a gap, in place of `prompt`."""
    end_ids: Callable[[frozenset[int]], frozenset[int]] = _the_same
    """The ids that end an answer."""
    lost_tokens: int = 0
    """Tokens lost at an answer's end."""

    def configured(self, config: EngineConfig, folder: Path) -> EngineConfig:
        """The settings of an engine with this defect for the model of a folder."""
        config = msgspec.structs.replace(config, model=str(folder))
        if self.quantization != "none":
            config = msgspec.structs.replace(config, quantization=self.quantization)
        # the native kernels do not round keys and values
        return config if self.kept is None else msgspec.structs.replace(config, kernels="torch")

    def ids_of(self, tokenizer: Tokenizer, question: Question) -> list[int]:
        """The prompt of a question, as this defect makes it."""
        if question.gap is None:
            return self.prompt(tokenizer, question.messages)
        return self.layout(tokenizer, question.gap)

    def linears(self, sound: Linears) -> Linears:
        """The factory of the layers, including broken ones."""
        return sound if self.weights is None else _BrokenLinears(sound, self.layers, self.weights)

    def text_stream(self, sound: Callable[[], TextStream]) -> TextStream:
        """The decoder of an answer's tokens."""
        return _CutStream(sound(), self.lost_tokens) if self.lost_tokens else sound()


SOUND = Defect(name="sound", about="the model as it ships")


def scaled_layer(factor: float = 2.0, layers: str = "layers.0.qkv") -> Defect:
    """A layer with a wrong scale, such as one that was applied twice or in the wrong format."""
    return Defect(
        name="layer scaled",
        about="a layer's weights are so many times too large",
        caught_by=("translation", "repeat", "multi-turn", "arithmetic", "benign", "json", "lists", "instructions"),
        strength=factor,
        layers=layers,
        weights=lambda weight: weight * factor,
    )


def rounded_keys_and_values(bits: int = 3) -> Defect:
    """Keys and values in too few bits, with one scale for all heads of a token."""

    def kept(heads: Tensor) -> Tensor:
        steps = 2 ** (bits - 1) - 1
        scale: Tensor = heads.abs().amax((2, 3), keepdim=True).clamp_min(1e-12) / steps
        return scale * (heads / scale).round()

    return Defect(
        name="KV rounded",
        about="keys and values keep so many bits",
        strength=bits,
        kept=kept,
        caught_by=(
            "json",
            "repeat",
            "lists",
            "code",
            "retrieval-500",
            "retrieval-100",
            "multi-turn",
            "translation",
            "arithmetic",
            "facts",
            "refusals",
            "benign",
            "instructions",
            "greetings",
        ),
    )


def truncated_context(tokens: int = 64) -> Defect:
    """A context shorter than stated, so that the conversation's beginning is lost silently."""

    def prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
        ids, leading = conversation(tokenizer, messages), len(tokenizer.leading_ids)
        return ids if len(ids) <= tokens else ids[:leading] + ids[len(ids) - (tokens - leading) :]

    def layout(tokenizer: Tokenizer, gap: Gap) -> list[int]:
        return filled(tokenizer, Gap(gap.prefix[-tokens:], gap.suffix[:tokens]))

    return Defect(
        name="context truncated",
        about="only the last so many tokens are seen, of a gap so many characters on either side",
        strength=tokens,
        prompt=prompt,
        layout=layout,
        caught_by=("retrieval-100", "retrieval-500", "multi-turn", "json"),
    )


def wrong_template() -> Defect:
    """Roles as words instead of the model's control tokens, like the fallback of a server without a template."""

    def prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
        turns = [f"{message['role'].capitalize()}: {message['content']}\n" for message in messages]
        return tokenizer.encode("".join(turns) + "Assistant:")

    def layout(tokenizer: Tokenizer, gap: Gap) -> list[int]:
        return filled(tokenizer, Gap(gap.suffix, gap.prefix))

    return Defect(
        name="wrong template",
        about="roles are written as words; the sides of a gap are swapped",
        prompt=prompt,
        layout=layout,
        caught_by=(
            "refusals",
            "code",
            "translation",
            "arithmetic",
            "instructions",
            "repeat",
            "benign",
            "lists",
            "json",
            "greetings",
            "multi-turn",
            "facts",
            "retrieval-500",
        ),
    )


def last_turn_only() -> Defect:
    """A template that contains only the last message."""

    def prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
        return conversation(tokenizer, messages[-1:])

    return Defect(name="last turn only", about="earlier messages are lost", prompt=prompt, caught_by=("multi-turn",))


def early_stop(tokens: int = 1) -> Defect:
    """The last tokens before the end are lost with it."""
    return Defect(
        name="stops early",
        about="so many tokens of an answer's end are lost",
        strength=tokens,
        lost_tokens=tokens,
        caught_by=("repeat", "code", "instructions", "translation", "json", "arithmetic", "lists", "multi-turn"),
    )


def late_stop(tokens: int = 1) -> Defect:
    """Ids of end tokens that are off by `tokens`, so that answers end only by length."""
    return Defect(
        name="stops late",
        about="end ids are so many too high",
        caught_by=(
            "repeat",
            "code",
            "instructions",
            "translation",
            "json",
            "lists",
            "arithmetic",
            "refusals",
            "multi-turn",
        ),
        strength=tokens,
        end_ids=lambda ids: frozenset(id_ + tokens for id_ in ids),
    )


def scales_of_wrong_axis(layers: str = "layers.*.qkv") -> Defect:
    """int8 in which the scales of a layer's first rows are applied to its columns. Loading raises ValueError if a
    layer has more columns than rows."""

    def weights(weight: Tensor) -> Tensor:
        rounded, scales = int8_of(weight)
        if weight.shape[0] < weight.shape[1]:
            raise ValueError(f"a layer of shape {tuple(weight.shape)} has fewer scales than columns")
        return rounded * scales[: weight.shape[1]]

    return Defect(
        name="int8, wrong axis",
        about="a layer's scales are those of another axis",
        caught_by=(
            "code",
            "refusals",
            "json",
            "retrieval-100",
            "lists",
            "multi-turn",
            "arithmetic",
            "translation",
            "repeat",
            "greetings",
            "instructions",
            "benign",
            "facts",
        ),
        quantization="int8",
        layers=layers,
        weights=weights,
    )


def lost_scales(channels: int = 1, layers: str = "layers.2.qkv") -> Defect:
    """int8 in which the first rows of a layer have lost their scale and are multiplied by 1."""

    def weights(weight: Tensor) -> Tensor:
        rounded, scales = int8_of(weight)
        scales[:channels] = 1.0
        return rounded * scales[:, None]

    return Defect(
        name="int8, scale lost",
        about="so many channels of a layer have lost their scale",
        caught_by=("arithmetic",),
        strength=channels,
        quantization="int8",
        layers=layers,
        weights=weights,
    )


def shifted_scales(rows: int = 1, layers: str = "layers.*.qkv") -> Defect:
    """int8 in which each row has the scale of the row `rows` before it."""

    def weights(weight: Tensor) -> Tensor:
        rounded, scales = int8_of(weight)
        return rounded * scales.roll(rows)[:, None]

    return Defect(
        name="int8, scales shifted",
        about="each row has the scale of the one so many before it",
        caught_by=(
            "code",
            "refusals",
            "json",
            "lists",
            "repeat",
            "multi-turn",
            "translation",
            "retrieval-100",
            "retrieval-500",
            "arithmetic",
            "instructions",
            "benign",
            "greetings",
            "facts",
        ),
        strength=rows,
        quantization="int8",
        layers=layers,
        weights=weights,
    )


def int8_of(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A layer's integer steps, (out, in) float32, and the size of each row's step, (out,), as in `Int8Linear`."""
    scales = (weight.abs().amax(1) / MAX).clamp_min(torch.finfo(torch.float32).tiny)
    return (weight / scales[:, None]).round(), scales


SEEDED: tuple[Callable[..., Defect], ...] = (
    scaled_layer,
    rounded_keys_and_values,
    truncated_context,
    wrong_template,
    last_turn_only,
    early_stop,
    late_stop,
    scales_of_wrong_axis,
    lost_scales,
    shifted_scales,
)


def seeded() -> tuple[Defect, ...]:
    """One of each, in the strength that a gate must detect."""
    return tuple(make() for make in SEEDED)


class _BrokenLinears:
    def __init__(self, sound: Linears, layers: str, weights: Weights) -> None:
        self._sound = sound
        self._layers = layers
        self._weights = weights
        self.wide = sound.wide

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        if fnmatchcase(name, self._layers):
            weight = self._weights(weight.float())
        return self._sound.make(name, weight, bias)


class _CutStream:
    """Holds back the last tokens and never returns them."""

    def __init__(self, sound: TextStream, tokens: int) -> None:
        self._sound = sound
        self._tokens = tokens
        self._held: list[int] = []

    def follow(self, ids: Sequence[int]) -> None:
        self._sound.follow(ids)

    def step(self, id_: int) -> str:
        self._held.append(id_)
        return self._sound.step(self._held.pop(0)) if len(self._held) > self._tokens else ""

    def flush(self) -> str:
        return self._sound.flush()
