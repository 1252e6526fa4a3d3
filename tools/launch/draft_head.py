"""Checks that a draft head was made for its model: engines load any head, which then drafts nothing or fails late.

The head reads the model's hidden states and proposes its tokens, so widths, vocabulary and number format must be equal.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from engines.performance.model_shape import ModelShape
from speculative.eagle.config import VOCABULARY_MAPS

USUAL_DRAFT_VOCABULARY = 32_000
"""Assumed rows of an EAGLE-3 head's output, if the head cannot be read."""
HEAD_BYTES = 2.0
"""Bytes per parameter: heads are stored in BF16."""
ARCHITECTURES = {"eagle3": "Eagle3", "eagle": "Eagle"}
MIN_LAYERS = 7
"""Minimum for a model whose head does not name the layers that it reads: engines then take the second, the one before
the middle and the fourth from last, which in a smaller model are not three different layers."""
MAX_HEADER_BYTES = 100_000_000
"""Limit of the safetensors format."""
TRAIN = "docs/guides/train-the-models.md"


class HeadOfAnotherModel(ConfigError):
    """The draft head does not fit the model it would draft for."""


class _Eagle(msgspec.Struct, frozen=True):
    eagle_aux_hidden_state_layer_ids: tuple[int, ...] | None = None


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
    eagle_config: _Eagle | None = None
    eagle_aux_hidden_state_layer_ids: tuple[int, ...] | None = None

    @property
    def outputs(self) -> tuple[int, ...]:
        """Layers of the model whose outputs the head reads; empty if the file does not name them."""
        return (self.eagle_config and self.eagle_config.eagle_aux_hidden_state_layer_ids) or ()

    @property
    def numbers(self) -> str:
        """Number format, such as `bfloat16`; newer folders call the key `dtype`."""
        return self.torch_dtype or self.dtype


def head_parameters(folder: Path, shape: ModelShape) -> float:
    """Parameters of a head without its embedding, which is the model's. A head that cannot be read here is assumed to
    have a layer like the model's with twice the input width, and the usual vocabulary."""
    head = _read(folder)
    if head is None:
        layer = shape.parameters / shape.layers
        return layer + 4 * shape.hidden**2 + USUAL_DRAFT_VOCABULARY * shape.hidden
    hidden, size = head.hidden_size, head.head_dim or head.hidden_size // head.num_attention_heads
    into = 2 * hidden * size * (head.num_attention_heads + 2 * (head.num_key_value_heads or head.num_attention_heads))
    layer = into + head.num_attention_heads * size * hidden + 3 * hidden * head.intermediate_size
    combined = 3 * hidden * (head.target_hidden_size or hidden)
    return float(layer + combined + (head.draft_vocab_size or head.vocab_size) * hidden)


def layers_read(folder: Path) -> tuple[int, ...]:
    """Layers of the model whose outputs the head reads, as SGLang and TensorRT-LLM count them. Empty if the head
    cannot be read here or does not name them."""
    head = _read(folder)
    return () if head is None else head.outputs


def require_layers_for_vllm(folder: Path, field: str) -> None:
    """Refuse a head to which vLLM would give other layers than it was trained with: without its own key, vLLM takes the
    other engines' output numbers for input numbers, one layer too early. Raises ConfigError."""
    head = _read(folder)
    if head is None or not head.outputs or head.eagle_aux_hidden_state_layer_ids:
        return
    inputs = [layer + 1 for layer in head.outputs]
    raise ConfigError(
        f"{field}.draft_model: {folder} says which layers' outputs it reads, {list(head.outputs)}, and not in vLLM's "
        "way, which would read the layers before them and draft nothing useful; write "
        f'"eagle_aux_hidden_state_layer_ids": {inputs} into the top level of its config.json, as `python -m '
        f"tools.training head` does ({TRAIN})",
        param=f"{field}.draft_model",
    )


def require_no_map_for_vllm(folder: Path, field: str) -> None:
    """Refuse a head of the model's whole vocabulary whose file nevertheless has a vocabulary map: vLLM has no parameter
    for the map and does not start. Raises ConfigError."""
    head, file = _read(folder), folder / "model.safetensors"
    if head is None or head.draft_vocab_size != head.vocab_size or not file.is_file():
        return
    found = [name for name in VOCABULARY_MAPS if name in _tensors(file)]
    if found:
        raise ConfigError(
            f"{field}.draft_model: {folder} guesses among all {head.vocab_size:,} tokens of its model, and {file.name} "
            f"has {' and '.join(found)}, for which vLLM has no place there, so that it would not start; leave them out "
            f"of the file, as `python -m tools.training head` does ({TRAIN})",
            param=f"{field}.draft_model",
        )


def _tensors(file: Path) -> dict[str, msgspec.Raw]:
    """The header of a safetensors file: eight bytes that give the length of the JSON after them."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > MAX_HEADER_BYTES:
                raise ConfigError(f"{file}: is not a safetensors file", param="draft_model")
            return msgspec.json.decode(opened.read(length), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}", param="draft_model") from error


def require_head_of(model: Path, head: Path, algorithm: str, context_tokens: int, field: str) -> bool:
    """Refuse a head of another model. Returns False if a folder is not on this machine, so nothing was compared.

    Raises HeadOfAnotherModel, and ConfigError if only the model's folder is here.
    """
    target, draft = _read(model), _read(head)
    if target is not None and draft is None:
        raise ConfigError(
            f"{field}.draft_model: {head} has no config.json here, where the model's folder {model} is; put the head "
            f"there, correct the path, train one with `python -m tools.training head --model {model}` ({TRAIN}), or "
            "remove speculation",
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
    if algorithm == "eagle3":
        _require_layers(target.num_hidden_layers, draft, model, head, field)
    width = draft.target_hidden_size or draft.hidden_size
    for what, of_head, of_model in (
        ("hidden states", width, target.hidden_size),
        ("vocabulary", draft.vocab_size, target.vocab_size),
        ("numbers", draft.numbers, target.numbers),
    ):
        if of_head and of_model and of_head != of_model:
            raise HeadOfAnotherModel(
                f"{field}.draft_model: {head} is a head of another model: its {what} are {of_head}, those of {model} "
                f"{of_model}; name the one that was trained for it, or train one with `python -m tools.training head "
                f"--model {model}` ({TRAIN})",
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


def _require_layers(layers: int, draft: _Config, model: Path, head: Path, field: str) -> None:
    if draft.outputs and max(draft.outputs) >= layers:
        raise HeadOfAnotherModel(
            f"{field}.draft_model: {head} reads the layers {list(draft.outputs)} of its model, and {model} has "
            f"{layers}, counted from 0; name the head that was trained for it, or train one with `python -m "
            f"tools.training head --model {model}` ({TRAIN})",
            param=f"{field}.draft_model",
        )
    if not draft.outputs and layers < MIN_LAYERS:
        raise HeadOfAnotherModel(
            f"{field}.draft_model: {head} does not say which three layers it reads, and for {layers} layers engines do "
            f"not find them (for {MIN_LAYERS} and more they do); write those it was trained with into its "
            "config.json "
            'as "eagle_config": {"eagle_aux_hidden_state_layer_ids": […]}, or train one that says them with '
            f"`python -m tools.training head --model {model}` ({TRAIN})",
            param=f"{field}.draft_model",
        )


def _read(folder: Path) -> _Config | None:
    file = folder / "config.json"
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}", param="draft_model") from error
