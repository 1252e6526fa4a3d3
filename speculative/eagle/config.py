"""The shape of an EAGLE-3 head, with the names of its exported config.json."""

from __future__ import annotations

import msgspec

ARCHITECTURE = "LlamaForCausalLMEagle3"
VOCABULARY_MAPS = ("d2t", "t2d")
"""Tensors of a head that map its vocabulary to the target's and back."""


class HeadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One decoder layer over three of the target's hidden states and the embedding of the token after them."""

    vocab_size: int
    """The target's vocabulary size."""
    draft_vocab_size: int
    """Number of tokens the head can draft: the most frequent ones of its training text."""
    hidden_size: int
    """Hidden size of both target and head."""
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    """At least the target's context: SGLang refuses less."""
    eagle_aux_hidden_state_layer_ids: tuple[int, int, int]
    """Target layers (from 0) whose outputs are the features, in ascending order."""

    @property
    def guesses_all(self) -> bool:
        """Whether the head can draft every token of the target, so that it needs no map."""
        return self.draft_vocab_size == self.vocab_size


def default_layers(layers: int) -> tuple[int, int, int]:
    """An early, a middle and a late layer of a target with `layers` layers. Raises ValueError below 4 layers.

    For 8 layers or more, SGLang, TensorRT-LLM and vLLM choose the same by default; for a smaller target they must be
    set. The last layer is never chosen: SGLang reads a layer's output as the next layer's input, and the last has no
    next.
    """
    if layers < 4:
        raise ValueError(f"a target of {layers} layers has no three hidden states between layers")
    if layers >= 8:
        return (1, layers // 2 - 1, layers - 4)
    return (0, (layers - 1) // 2, layers - 2)
