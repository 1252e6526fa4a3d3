"""What config.json says about a model's shape, checked when the engine starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError


class RopeScaling(msgspec.Struct, frozen=True):
    """Llama 3's stretching of rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


class ModelConfig(msgspec.Struct, frozen=True):
    """The shape of a decoder in the Llama family, in Hugging Face's names."""

    architecture: str
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
    attention_bias: bool
    mlp_bias: bool
    dtype: str
    """The checkpoint's own number format: `bfloat16`, `float16` or `float32`."""

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers kept per token: keys and values of every layer."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read config.json. Raises ConfigError naming the field, the value and what is allowed."""
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
        heads = self._count("num_attention_heads")
        kv_heads = self._count("num_key_value_heads", heads)
        hidden = self._count("hidden_size")
        head_dim = self._count("head_dim", hidden // heads)
        if heads % kv_heads:
            raise self._wrong("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
        if head_dim % 2:
            raise self._wrong("head_dim", "an even number")
        if self._raw.get("hidden_act", "silu") not in ("silu", "swish"):
            raise self._wrong("hidden_act", "silu")
        if self._raw.get("quantization_config"):
            raise self._wrong("quantization_config", "absent: quantized checkpoints are not supported")
        context = self._count("max_position_embeddings")
        window = self._raw.get("sliding_window")
        if window is not None and self._raw.get("use_sliding_window", True) and window < context:
            raise self._wrong("sliding_window", "null: attention over a window is not supported")
        return ModelConfig(
            architecture=architectures[0],
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
            rope_scaling=self._rope_scaling(),
            tie_word_embeddings=self._flag("tie_word_embeddings"),
            attention_bias=self._flag("attention_bias"),
            mlp_bias=self._flag("mlp_bias"),
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
        raw = self._raw.get(field)
        if not raw:
            return None
        kind = raw.get("rope_type", raw.get("type", "default")) if isinstance(raw, dict) else None
        if kind == "default":
            return None
        if kind != "llama3":
            raise self._wrong(field, "absent, or of rope_type default or llama3")
        try:
            return msgspec.convert(raw, RopeScaling)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self._path}: {field}: {error}") from None

    def _count(self, field: str, default: int | None = None) -> int:
        value = self._raw.get(field)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._wrong(field, "a positive integer")
        return value

    def _number(self, field: str, default: float) -> float:
        value = self._raw.get(field, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise self._wrong(field, "a positive number")
        return float(value)

    def _flag(self, field: str) -> bool:
        value = self._raw.get(field, False)
        if not isinstance(value, bool):
            raise self._wrong(field, "true or false")
        return value

    def _wrong(self, field: str, allowed: str) -> ConfigError:
        return ConfigError(f"{self._path}: {field} must be {allowed}; got {self._raw.get(field)!r}", param=field)
