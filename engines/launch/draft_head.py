"""Whether a draft head was made for this model: heads load beside any model and then guess nothing, or fail late.

The head reads the model's hidden states and proposes its tokens, so widths, vocabulary and number format must be equal.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from engines.performance.model_shape import ModelShape

USUAL_DRAFT_VOCABULARY = 32_000
"""Rows of an EAGLE-3 head's output, where the head cannot be read."""
HEAD_BYTES = 2.0
"""Heads are kept in BF16."""
ARCHITECTURES = {"eagle3": "Eagle3", "eagle": "Eagle"}
LEAST_LAYERS = 6
"""EAGLE-3 reads three layers of the model, the last but three among them: TensorRT-LLM refuses five and fewer."""


class HeadOfAnotherModel(ConfigError):
    """The draft head does not fit the model it would draft for."""


class _Config(msgspec.Struct, frozen=True):
    architectures: tuple[str, ...]
    hidden_size: int
    vocab_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    target_hidden_size: int | None = None
    draft_vocab_size: int | None = None
    max_position_embeddings: int = 0
    torch_dtype: str = ""
    dtype: str = ""

    @property
    def numbers(self) -> str:
        """`bfloat16`; newer folders call the key `dtype`."""
        return self.torch_dtype or self.dtype


def head_parameters(folder: Path, shape: ModelShape) -> float:
    """Of a head without its embedding, which is the model's. One that cannot be read here is taken to be of the usual
    form: a layer like the model's with twice the width going in, and the usual vocabulary."""
    head = _read(folder)
    if head is None:
        layer = shape.parameters / shape.layers
        return layer + 4 * shape.hidden**2 + USUAL_DRAFT_VOCABULARY * shape.hidden
    hidden, size = head.hidden_size, head.head_dim or head.hidden_size // head.num_attention_heads
    into = 2 * hidden * size * (head.num_attention_heads + 2 * (head.num_key_value_heads or head.num_attention_heads))
    layer = into + head.num_attention_heads * size * hidden + 3 * hidden * head.intermediate_size
    combined = 3 * hidden * (head.target_hidden_size or hidden)
    return float(layer + combined + (head.draft_vocab_size or head.vocab_size) * hidden)


def require_head_of(model: Path, head: Path, algorithm: str, context_tokens: int, field: str) -> bool:
    """Refuse a head of another model. False: not both folders are on this machine, so nothing was compared.

    Raises HeadOfAnotherModel, and ConfigError for a head that is missing beside a model that is there.
    """
    target, draft = _read(model), _read(head)
    if target is not None and draft is None:
        raise ConfigError(
            f"{field}.draft_model: {head} has no config.json here, where the model's folder {model} is; put the head "
            "there, correct the path, or remove speculation",
            param=f"{field}.draft_model",
        )
    if target is None or draft is None:
        return False
    wanted = ARCHITECTURES[algorithm]
    kind = next((each for each in draft.architectures if each.endswith(wanted)), None)
    if kind is None:
        raise HeadOfAnotherModel(
            f"{field}.draft_model: {head} is {', '.join(draft.architectures)}, no {algorithm} head; name one whose "
            f"architecture ends in {wanted!r}, or another algorithm",
            param=f"{field}.draft_model",
        )
    if algorithm == "eagle3" and target.num_hidden_layers < LEAST_LAYERS:
        raise HeadOfAnotherModel(
            f"{field}.algorithm: eagle3 reads three layers of the model, and {target.num_hidden_layers} are too few; "
            f"at least {LEAST_LAYERS}",
            param=f"{field}.algorithm",
        )
    width = draft.target_hidden_size or draft.hidden_size
    for what, mine, its in (
        ("hidden states", width, target.hidden_size),
        ("vocabulary", draft.vocab_size, target.vocab_size),
        ("numbers", draft.numbers, target.numbers),
    ):
        if mine and its and mine != its:
            raise HeadOfAnotherModel(
                f"{field}.draft_model: {head} is a head of another model: its {what} are {mine}, those of {model} "
                f"{its}; train one for this model, or name the one that was",
                param=f"{field}.draft_model",
            )
    if draft.max_position_embeddings and draft.max_position_embeddings < context_tokens:
        raise HeadOfAnotherModel(
            f"{field}.draft_model: {head} was made for {draft.max_position_embeddings:,} tokens and the context is "
            f"{context_tokens:,}; shorten context_tokens, or write the longer max_position_embeddings into the head's "
            "config.json if it was trained so",
            param=f"{field}.draft_model",
        )
    return True


def _read(folder: Path) -> _Config | None:
    file = folder / "config.json"
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}", param="draft_model") from error
