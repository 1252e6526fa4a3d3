"""Reads a model's shape from config.json or a GGUF file and checks it when the engine starts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import msgspec

from contracts.errors import ConfigError
from contracts.printable import excerpt
from engines.embedded.models.rope import MAX, LongScaling, RopeScaling, YarnScaling, read_scaling, shown
from engines.families import FAMILIES, Family, decoder_fields
from engines.gguf.file import is_gguf
from engines.gguf.model_config import config_of

FULL, SLIDING = "full_attention", "sliding_attention"
UNSERVED = ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention")
"""Fields that change a decoder's computation in a way that no decoder here supports."""
MAX_LAYERS = 1_024


class ModelConfig(msgspec.Struct, frozen=True):
    """The shape of a decoder, with Hugging Face's names. The defaults are Llama's."""

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
    """Whether the checkpoint is a decoder without a head, which computes states and no tokens."""
    dtype: str
    """The checkpoint's own number format: `bfloat16`, `float16` or `float32`."""
    fused: bool = False
    """See `Family`, also for the next three fields."""
    activation: Literal["silu", "gelu_pytorch_tanh"] = "silu"
    unit_offset: bool = False
    outer_norms: bool = False
    embedding_scale: float = 1.0
    """Factor of the embeddings."""
    query_scale: float = 1.0
    """Factor of normalised queries, in addition to the root of the head size."""
    rotary_share: float = 1.0
    """Share of a head's numbers, counted from the first, that are rotated."""
    window: int = 0
    """Number of last positions, including its own, that a token attends to in the layers `windowed`."""
    windowed: frozenset[int] = frozenset()
    """Layers, from 0, that attend only to a window; the others attend to the whole context."""
    local_rope_theta: float | None = None
    """Unscaled base frequency of the windowed layers; None if they rotate like the others."""

    @property
    def rotary_dim(self) -> int:
        """Numbers of a head that are rotated."""
        return int(self.head_dim * self.rotary_share)

    @property
    def is_plain(self) -> bool:
        """Whether the model computes like a Llama within this context, as the native kernels require."""
        near = self.windowed and (self.window < self.max_position_embeddings or self.local_rope_theta is not None)
        own = self.unit_offset or self.outer_norms or self.embedding_scale != 1 or self.activation != "silu"
        return not (near or own)

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers stored per token for the keys and values of all layers."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim

    @property
    def rotary_bytes_per_token(self) -> int:
        """Bytes of the rotary tables, of a complex number per pair of a head, and of a copy while the last is built."""
        tables = 1 if self.local_rope_theta is None else 2
        return (tables + 1) * 4 * self.head_dim

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read config.json or the header of a GGUF file. Raises ConfigError with the field, its value and the allowed
        values."""
        if is_gguf(folder):
            return _Reader(folder, config_of(folder)).config()
        path = folder / "config.json"
        try:
            raw = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}; give a Hugging Face model folder") from None
        except (msgspec.DecodeError, RecursionError) as error:
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
                f"{self._path}: architectures: {excerpt(architectures[0])} is not supported; supported: "
                f"{', '.join(sorted(FAMILIES))}",
                param="architectures",
            )
        self._raw = decoder_fields(self._raw, family)
        heads = self._count("num_attention_heads")
        kv_heads = self._count("num_key_value_heads", heads)
        hidden = self._count("hidden_size")
        head_dim = self._count("head_dim", family.head_dim or hidden // heads)
        if heads % kv_heads:
            raise self._wrong("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
        if head_dim % 2:
            raise self._wrong("head_dim", "an even number", head_dim)
        act = "hidden_act" if family.activation == "silu" else "hidden_activation"
        if str(self._raw.get(act, family.activation)).replace("swish", "silu") != family.activation:
            raise self._wrong(act, family.activation)
        for field in UNSERVED:
            if self._raw.get(field):
                raise self._wrong(field, "absent: it is not supported")
        if self._raw.get("quantization_config"):
            raise self._wrong("quantization_config", "absent: quantized checkpoints are not supported")
        rope = self._rope(FULL)
        scaling = self._rope_scaling(rope)
        context = self._count("max_position_embeddings")
        share = self._share(rope, head_dim)
        if isinstance(scaling, YarnScaling):
            # some folders give the context before scaling, others the context after it
            context = max(context, int(scaling.factor * scaling.original_max_position_embeddings))
        if isinstance(scaling, LongScaling):
            scaling = scaling.of(context)
            pairs = int(head_dim * share) // 2
            for field, factors in (("short_factor", scaling.short_factor), ("long_factor", scaling.long_factor)):
                if len(factors) != pairs:
                    raise ConfigError(
                        f"{self._path}: {field} must have {pairs} numbers, half of those that are "
                        f"rotated in a head; got {len(factors)}",
                        param=field,
                    )
        layers = self._count("num_hidden_layers", most=MAX_LAYERS)
        windowed = self._windowed(family, layers, context)
        query_size = self._number("query_pre_attn_scalar", self._raw.get("query_pre_attn_scalar", head_dim), 1)
        return ModelConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            intermediate_size=self._count("intermediate_size"),
            vocab_size=self._count("vocab_size"),
            max_position_embeddings=context,
            rms_norm_eps=self._number("rms_norm_eps", self._raw.get("rms_norm_eps", 1e-6), 1e-20, 1),
            rope_theta=self._theta(rope, "rope_theta"),
            rope_scaling=scaling,
            tie_word_embeddings=family.headless or self._flag("tie_word_embeddings"),
            qkv_bias=self._bias(family.qkv_bias, "attention_bias"),
            output_bias=self._bias(family.output_bias, "attention_bias"),
            mlp_bias=self._bias(family.mlp_bias, "mlp_bias"),
            qk_norm=family.qk_norm,
            headless=family.headless,
            dtype=str(self._raw.get("dtype") or self._raw.get("torch_dtype") or "float32"),
            fused=family.fused,
            activation=family.activation,
            unit_offset=family.unit_offset,
            outer_norms=family.outer_norms,
            embedding_scale=math.sqrt(hidden) if family.scaled_embedding else 1.0,
            query_scale=math.sqrt(head_dim / query_size),
            rotary_share=share,
            window=self._count("sliding_window") if windowed else 0,
            windowed=windowed,
            local_rope_theta=self._local_theta() if windowed else None,
        )

    def _rope(self, kind: str) -> dict[str, Any]:
        """`rope_parameters` of layers of this kind. Newer folders nest the base frequency with the scaling, and both by
        kind if there are two kinds."""
        parameters = self._raw.get("rope_parameters")
        if not isinstance(parameters, dict):
            return {}
        by_kind = {FULL: parameters} if not parameters.keys() & {FULL, SLIDING} else parameters
        own = by_kind.get(kind)
        return own if isinstance(own, dict) else {}

    def _theta(self, rope: dict[str, Any], field: str) -> float:
        nested = rope.get("rope_theta")
        if nested is not None:
            return self._number("rope_theta", nested, 2)
        return self._number(field, self._raw.get(field, 10_000.0), 2)

    def _local_theta(self) -> float | None:
        rope = self._rope(SLIDING)
        if not rope and "rope_local_base_freq" not in self._raw:
            return None
        if read_scaling(self._path, "rope_parameters", rope) is not None:
            raise self._wrong("rope_parameters", f"of rope_type default for {SLIDING}")
        return self._theta(rope, "rope_local_base_freq")

    def _share(self, rope: dict[str, Any], head_dim: int) -> float:
        field = "partial_rotary_factor"
        value = rope.get(field, self._raw.get(field, 1.0))
        share = self._number(field, value, 0, 1)
        rotated = int(head_dim * share)
        if rotated < 2 or rotated % 2:
            allowed = f"a share that rotates an even count of a head's {head_dim:,} numbers, 2 at the least"
            raise self._wrong(field, allowed, value)
        return share

    def _rope_scaling(self, rope: dict[str, Any]) -> RopeScaling | None:
        older = self._raw.get("rope_scaling")
        field, scaling = (
            ("rope_scaling", older) if older else ("rope_parameters", rope or self._raw.get("rope_parameters"))
        )
        trained = self._raw.get("original_max_position_embeddings")
        if isinstance(scaling, dict) and trained is not None:
            scaling = {**scaling, "original_max_position_embeddings": trained}
        return read_scaling(self._path, field, scaling)

    def _bias(self, fixed: bool | None, field: str) -> bool:
        return self._flag(field) if fixed is None else fixed

    def _windowed(self, family: Family, layers: int, context: int) -> frozenset[int]:
        """The layers that attend to a window."""
        used = self._raw.get("use_sliding_window", family.window_by_default is not False)
        window = self._raw.get("sliding_window") if used else None
        if window is not None and family.window_by_default is None:
            if self._count("sliding_window") < context:
                raise self._wrong("sliding_window", "null: this architecture has no windows")
            window = None
        kinds = self._raw.get("layer_types")
        if kinds is None:
            if window is None:
                return frozenset()
            if not family.window_by_default:
                raise self._wrong("layer_types", "given where use_sliding_window is true")
            pattern = self._count("sliding_window_pattern", layers + 1)
            kinds = [SLIDING if (layer + 1) % pattern else FULL for layer in range(layers)]
        if not isinstance(kinds, list) or len(kinds) < layers or any(kind not in (FULL, SLIDING) for kind in kinds):
            raise self._wrong("layer_types", f"{FULL} or {SLIDING} for each of {layers} layers")
        windowed = frozenset(layer for layer in range(layers) if kinds[layer] == SLIDING)
        if windowed and window is None:
            raise self._wrong("layer_types", f"{FULL} for every layer without use_sliding_window and sliding_window")
        return windowed

    def _count(self, field: str, default: int | None = None, most: int = MAX) -> int:
        value = self._raw.get(field)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise self._wrong(field, f"an integer from 1 to {most:,}", value)
        return value

    def _number(self, field: str, value: Any, least: float, most: float = MAX) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(field, f"a number from {least:,} to {most:,}", value)
        return float(value)

    def _flag(self, field: str) -> bool:
        value = self._raw.get(field, False)
        if not isinstance(value, bool):
            raise self._wrong(field, "true or false")
        return value

    def _wrong(self, field: str, allowed: str, value: Any = msgspec.UNSET) -> ConfigError:
        """value: the value if it is not the field's own, but nested or a default."""
        got = self._raw.get(field) if value is msgspec.UNSET else value
        return ConfigError(f"{self._path}: {field} must be {allowed}; got {shown(got)}", param=field)
