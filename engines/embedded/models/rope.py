"""Rotary scaling as config.json writes it, and the rotary table it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from contracts.errors import ConfigError
from engines.layers.rotary import (
    Rotary,
    llama3_frequencies,
    plain_frequencies,
    yarn_frequencies,
    yarn_scale,
)

Factor = Annotated[float, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]
Positions = Annotated[int, Meta(ge=1)]


class LinearScaling(msgspec.Struct, frozen=True, tag_field="rope_type", tag="linear"):
    """Positions divided by a factor."""

    factor: Factor


class Llama3Scaling(msgspec.Struct, frozen=True, tag_field="rope_type", tag="llama3"):
    """Long wavelengths stretched, short ones kept."""

    factor: Factor
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_position_embeddings: Positions


class YarnScaling(msgspec.Struct, frozen=True, tag_field="rope_type", tag="yarn"):
    """Like Llama 3's with a ramp by dimension, and sharper attention (Peng et al. 2023); Qwen's long contexts."""

    factor: Factor
    original_max_position_embeddings: Positions
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    attention_factor: Positive | None = None


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling
KINDS = "absent, or of rope_type default, linear, llama3 or yarn"


def read_scaling(path: Path, field: str, raw: Any) -> RopeScaling | None:
    """The scaling in `rope_scaling` or `rope_parameters`; path and field: named in errors. Raises ConfigError."""
    if not raw:
        return None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: {field} must be {KINDS}; got {raw!r}", param=field)
    kind = raw.get("rope_type", raw.get("type", "default"))
    if kind == "default":
        return None
    if kind not in ("linear", "llama3", "yarn"):
        raise ConfigError(f"{path}: {field} must be {KINDS}; got {raw!r}", param=field)
    for unserved in ("mscale", "mscale_all_dim"):
        if raw.get(unserved):
            raise ConfigError(f"{path}: {field}.{unserved} is not supported; got {raw[unserved]!r}", param=field)
    try:
        return msgspec.convert({**raw, "rope_type": kind}, RopeScaling)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {field}: {error}", param=field) from None


def make_rotary(head_dim: int, theta: float, scaling: RopeScaling | None, max_positions: int) -> Rotary:
    """The table for a model. max_positions: the longest context."""
    plain = plain_frequencies(head_dim, theta)
    match scaling:
        case LinearScaling(factor=factor):
            # position interpolation: every position counts as 1/factor of itself (Chen et al. 2023)
            return Rotary(plain / factor, max_positions)
        case Llama3Scaling(factor=factor, original_max_position_embeddings=original):
            low, high = scaling.low_freq_factor, scaling.high_freq_factor
            return Rotary(llama3_frequencies(plain, factor, low, high, original), max_positions)
        case YarnScaling(factor=factor, original_max_position_embeddings=original):
            stretched = yarn_frequencies(plain, theta, factor, original, scaling.beta_fast, scaling.beta_slow)
            return Rotary(stretched, max_positions, scaling.attention_factor or yarn_scale(factor))
        case None:
            return Rotary(plain, max_positions)
