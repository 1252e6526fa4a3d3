"""Reads a model's shape from config.json or a GGUF file and checks it when the engine starts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError
from engines.embedded.models.families import FAMILIES, Family
from engines.embedded.models.rope import RopeScaling, YarnScaling, read_scaling
from engines.gguf.file import is_gguf
from engines.gguf.model_config import config_of


class ModelConfig(msgspec.Struct, frozen=True):
    """The shape of a decoder in the Llama family, in Hugging Face's names."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tie_word_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    headless: bool
    """The checkpoint is a decoder without a head, which makes states and no tokens."""
    dtype: str
    """The checkpoint's own number format: `bfloat16`, `float16` or `float32`."""

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers kept per token: keys and values of every layer."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read config.json or the head of a GGUF file. Raises ConfigError with the field, its value and the allowed
        values."""
        if is_gguf(folder):
            return _Reader(folder, config_of(folder)).config()
        path = folder / "config.json"
        try:
            raw = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}; give a Hugging Face model folder") from None
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}: not valid JSON: {error}") from None
        if not isinstance(raw, dict):
            raise ConfigError(f"{path}: must hold a JSON object; got {type(raw).__name__}")
        return _Reader(path, raw).config()


class _Reader:
    def __init__(self, path: Path, raw: dict[str, Any]) -> None:
        self._path = path
        self._raw = raw

    def config(self) -> ModelConfig:
        architectures = self._raw.get("architectures")
        if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
            raise self._wrong("architectures", "a list of one name")
        family = FAMILIES.get(architectures[0])
        if family is None:
            raise ConfigError(
                f"{self._path}: architectures: {architectures[0]} is not supported; supported: "
                f"{', '.join(sorted(FAMILIES))}",
                param="architectures",
            )
        heads = self._count("num_attention_heads")
        kv_heads = self._count("num_key_value_heads", heads)
        hidden = self._count("hidden_size")
        head_dim = self._count("head_dim", family.head_dim or hidden // heads)
        if heads % kv_heads:
            raise self._wrong("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
        if head_dim % 2:
            raise self._wrong("head_dim", "an even number")
        if self._raw.get("hidden_act", "silu") not in ("silu", "swish"):
            raise self._wrong("hidden_act", "silu")
        if self._raw.get("quantization_config"):
            raise self._wrong("quantization_config", "absent: quantized checkpoints are not supported")
        scaling = self._rope_scaling()
        context = self._count("max_position_embeddings")
        if isinstance(scaling, YarnScaling):
            # some folders give the context before the stretching, some the one after it
            context = max(context, int(scaling.factor * scaling.original_max_position_embeddings))
        self._refuse_window(family, context)
        return ModelConfig(
            hidden_size=hidden,
            num_hidden_layers=self._count("num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            intermediate_size=self._count("intermediate_size"),
            vocab_size=self._count("vocab_size"),
            max_position_embeddings=context,
            rms_norm_eps=self._number("rms_norm_eps", 1e-6),
            rope_theta=self._rope_theta(),
            rope_scaling=scaling,
            tie_word_embeddings=family.headless or self._flag("tie_word_embeddings"),
            qkv_bias=self._bias(family.qkv_bias, "attention_bias"),
            output_bias=self._bias(family.output_bias, "attention_bias"),
            mlp_bias=self._bias(family.mlp_bias, "mlp_bias"),
            qk_norm=family.qk_norm,
            headless=family.headless,
            dtype=str(self._raw.get("dtype") or self._raw.get("torch_dtype") or "float32"),
        )

    def _rope_theta(self) -> float:
        # newer folders nest the base frequency with the scaling
        nested = self._raw.get("rope_parameters")
        if isinstance(nested, dict) and isinstance(nested.get("rope_theta"), int | float):
            return float(nested["rope_theta"])
        return self._number("rope_theta", 10_000.0)

    def _rope_scaling(self) -> RopeScaling | None:
        field = "rope_scaling" if self._raw.get("rope_scaling") else "rope_parameters"
        return read_scaling(self._path, field, self._raw.get(field))

    def _bias(self, fixed: bool | None, field: str) -> bool:
        return self._flag(field) if fixed is None else fixed

    def _refuse_window(self, family: Family, context: int) -> None:
        """Require that every layer attends to the whole context."""
        window = self._raw.get("sliding_window")
        used = self._raw.get("use_sliding_window", family.window_by_default)
        if used and isinstance(window, int) and window < context:
            raise self._wrong("sliding_window", "null: attention over a window is not supported")
        if set(self._raw.get("layer_types") or ()) - {"full_attention"}:
            raise self._wrong("layer_types", "full_attention for every layer")

    def _count(self, field: str, default: int | None = None) -> int:
        value = self._raw.get(field)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._wrong(field, "a positive integer")
        return value

    def _number(self, field: str, default: float) -> float:
        value = self._raw.get(field, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self._wrong(field, "a positive number")
        return float(value)

    def _flag(self, field: str) -> bool:
        value = self._raw.get(field, False)
        if not isinstance(value, bool):
            raise self._wrong(field, "true or false")
        return value

    def _wrong(self, field: str, allowed: str) -> ConfigError:
        return ConfigError(f"{self._path}: {field} must be {allowed}; got {self._raw.get(field)!r}", param=field)
