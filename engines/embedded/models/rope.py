"""Reads rotary scaling from config.json and creates the rotary table."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from contracts.errors import ConfigError
from contracts.misfit import sentence_and_path
from contracts.printable import excerpt
from engines.layers.rotary import (
    Rotary,
    llama3_frequencies,
    long_scale,
    plain_frequencies,
    yarn_frequencies,
    yarn_scale,
)

MAX = 10**15
"""Limit of a number in config.json, which is far above any model's and exact as a float."""
Factor = Annotated[float, Meta(ge=1, le=10_000)]
Positive = Annotated[float, Meta(ge=0.001, le=10_000)]
Sharpness = Annotated[float, Meta(ge=0.01, le=100)]
Positions = Annotated[int, Meta(ge=2, le=MAX)]


class LinearScaling(msgspec.Struct, frozen=True, tag_field="rope_type", tag="linear"):
    """Divides positions by a factor."""

    factor: Factor


class Llama3Scaling(msgspec.Struct, frozen=True, tag_field="rope_type", tag="llama3"):
    """Stretches long wavelengths and keeps short ones."""

    factor: Factor
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_position_embeddings: Positions


class YarnScaling(msgspec.Struct, frozen=True, tag_field="rope_type", tag="yarn"):
    """Like Llama 3's, with a ramp by dimension and sharper attention (Peng et al. 2023), for Qwen's long contexts."""

    factor: Factor
    original_max_position_embeddings: Positions
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    attention_factor: Sharpness | None = None


class LongScaling(msgspec.Struct, frozen=True, tag_field="rope_type", tag="longrope"):
    """LongRoPE (Ding et al. 2024), which divides every frequency by its own factor, found by search. Phi's models have
    two sets of factors."""

    short_factor: tuple[Positive, ...]
    """Factors for contexts of at most `original_max_position_embeddings`."""
    long_factor: tuple[Positive, ...]
    original_max_position_embeddings: Positions
    factor: Factor | None = None
    attention_factor: Sharpness | None = None

    def of(self, context: int) -> LongScaling:
        """The scaling with the factor on attention that follows from the longest context."""
        original = self.original_max_position_embeddings
        factor = self.factor or context / original
        return msgspec.structs.replace(self, attention_factor=self.attention_factor or long_scale(factor, original))


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | LongScaling
NAMES = ("linear", "llama3", "yarn", "longrope")
KINDS = f"absent, or of rope_type default, {', '.join(NAMES[:-1])} or {NAMES[-1]}"


def read_scaling(path: Path, field: str, raw: Any) -> RopeScaling | None:
    """The scaling in `rope_scaling` or `rope_parameters`. path, field: for errors. Raises ConfigError."""
    if not raw:
        return None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: {field} must be {KINDS}; got {shown(raw)}", param=field)
    kind = raw.get("rope_type", raw.get("type", "default"))
    kind = "longrope" if kind == "su" else kind  # the earlier name of longrope
    if kind == "default":
        return None
    if kind not in NAMES:
        raise ConfigError(f"{path}: {field} must be {KINDS}; got {shown(raw)}", param=field)
    for unserved in ("mscale", "mscale_all_dim"):
        if raw.get(unserved):
            raise ConfigError(f"{path}: {field}.{unserved} is not supported; got {shown(raw[unserved])}", param=field)
    try:
        return msgspec.convert({**raw, "rope_type": kind}, RopeScaling)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        _, at = sentence_and_path(str(error))
        got = raw.get(at.partition("[")[0], raw)
        raise ConfigError(f"{path}: {field}: {error}; got {shown(got)}", param=field) from None


def shown(value: Any) -> str:
    """The beginning of a value of config.json for an error, because `repr` of nested lists can be long or too deep."""
    return excerpt(reprlib.repr(value))


def make_rotary(
    head_dim: int, theta: float, scaling: RopeScaling | None, max_positions: int, rotary_dim: int | None = None
) -> Rotary:
    """Create the table of a model. max_positions: the longest context, which also selects LongRoPE's factors for all
    requests, because a cached key cannot change its rotation. rotary_dim: rotated numbers of a head; None for all."""
    rotary = _made(theta, scaling, max_positions, rotary_dim or head_dim)
    rotary.leave(head_dim - (rotary_dim or head_dim))
    return rotary


def _made(theta: float, scaling: RopeScaling | None, max_positions: int, rotary_dim: int) -> Rotary:
    plain = plain_frequencies(rotary_dim, theta)
    match scaling:
        case LinearScaling(factor=factor):
            # position interpolation, which divides every position by the factor (Chen et al. 2023)
            return Rotary(plain / factor, max_positions)
        case Llama3Scaling(factor=factor, original_max_position_embeddings=original):
            low, high = scaling.low_freq_factor, scaling.high_freq_factor
            return Rotary(llama3_frequencies(plain, factor, low, high, original), max_positions)
        case YarnScaling(factor=factor, original_max_position_embeddings=original):
            scaled = yarn_frequencies(plain, theta, factor, original, scaling.beta_fast, scaling.beta_slow)
            return Rotary(scaled, max_positions, scaling.attention_factor or yarn_scale(factor))
        case LongScaling(original_max_position_embeddings=original):
            factors = scaling.long_factor if max_positions > original else scaling.short_factor
            return Rotary(plain / torch.tensor(factors), max_positions, scaling.attention_factor or 1.0)
        case None:
            return Rotary(plain, max_positions)
