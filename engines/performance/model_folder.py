"""Reads a model's shape from its Hugging Face `config.json` or the header of its GGUF file, never from the weights.

It supports dense decoders only: in a mixture of experts, the parameters do not determine a step's work. Layers with a
sliding window count like the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from contracts.errors import ConfigError
from engines.families import FAMILIES, decoder_fields
from engines.gguf.file import SUFFIX, is_gguf
from engines.gguf.model_config import config_of
from engines.performance.model_shape import ModelShape

Count = Annotated[int, msgspec.Meta(ge=1)]
ARCHITECTURES = tuple(name for name, family in FAMILIES.items() if not family.headless)


class _Named(msgspec.Struct, frozen=True):
    architectures: tuple[str, ...]


class _Config(msgspec.Struct, frozen=True):
    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    tie_word_embeddings: bool = False


def read_shape(folder: Path) -> ModelShape:
    """The model's shape in FP8, like those of the catalog; `Precision.of` converts it. Raises ConfigError."""
    file = folder if is_gguf(folder) else folder / "config.json"
    try:
        raw = config_of(folder) if is_gguf(folder) else msgspec.json.decode(file.read_bytes(), type=dict)
        named = msgspec.convert(raw, _Named).architectures
        known = [name for name in named if name in ARCHITECTURES]
        config = msgspec.convert(decoder_fields(raw, FAMILIES[known[0]]) if known else raw, _Config)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}", param="model") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file}: is not the configuration of a decoder: {error}", param="model") from error
    if not known:
        raise ConfigError(
            f"{file}: {', '.join(named) or 'no architecture'} cannot be planned; known: {', '.join(ARCHITECTURES)}",
            param="model",
        )
    kv_heads = config.num_key_value_heads or config.num_attention_heads
    head_size = config.head_dim or config.hidden_size // config.num_attention_heads
    return ModelShape(
        name=folder.resolve().name.removesuffix(SUFFIX),
        parameters=float(_parameters(config, kv_heads, head_size)),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=kv_heads,
        head_size=head_size,
    )


def _parameters(config: _Config, kv_heads: int, head_size: int) -> int:
    """Number of parameters, including norms but not Qwen2's biases, which are a ten-thousandth of them."""
    hidden = config.hidden_size
    attention = 2 * hidden * head_size * (config.num_attention_heads + kv_heads)  # q and o, k and v
    layer = attention + 3 * hidden * config.intermediate_size + 2 * hidden
    embeddings = config.vocab_size * hidden * (1 if config.tie_word_embeddings else 2)
    return embeddings + config.num_hidden_layers * layer + hidden
