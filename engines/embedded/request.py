"""A request to the engine, with prompts as token ids and sampling options, but without HTTP or templates."""

from __future__ import annotations

import msgspec

from engines.embedded.grammar.guide import Guide
from engines.embedded.kv.namespace import AdaptedSalt, Namespace
from engines.embedded.lora.adapter import Adapter
from engines.tokenizer.healing import Opening


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are chosen and when a sequence stops."""

    max_tokens: int
    """0 only computes the prompt and generates nothing."""
    temperature: float = 1.0
    """0 always picks the likeliest token."""
    top_p: float = 1.0
    top_k: int = 0
    """0 for all tokens."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the likeliest token's probability."""
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens in the prompt or the output, and multiplies negative ones; 1 is off."""
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    """Ids that end the text, including the model's own end tokens unless they are to be ignored."""
    min_tokens: int = 0
    """Number of generated tokens before which none of `stop_ids` is picked."""
    logprobs: int | None = None
    """Alternatives reported per token; 0 for the chosen token alone, None for no report."""
    score_prompt: bool = False
    """Report the prompt's tokens except the first, before the generated ones; needs `logprobs`."""
    pools_all: bool = False
    """Whether every prompt token must be computed, because the vector is their mean."""


class Request(msgspec.Struct, frozen=True):
    """A request for `choices_per_prompt` sequences for each prompt, numbered by prompt."""

    rid: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: Sampling
    choices_per_prompt: int = 1
    priority: int = 0
    """Higher priorities are admitted first, and equal ones in order of arrival."""
    start_within_s: float | None = None
    """A request that waits longer than this for its start is refused; None for no limit."""
    cache_salt: str = ""
    """Prompts with different salts never share cached keys and values."""
    guide: Guide | None = None
    """The required format of the output."""
    grammar_s: float = 0.0
    """Seconds for which the request waited for the grammar."""
    continues: bool = False
    """Whether the output continues the prompt's text, so that a space at its beginning belongs to it."""
    opening: Opening | None = None
    """A text with which the output must begin. It counts as generated and is not delivered. Excludes `guide`."""
    speculate: bool = True
    """Whether tokens may be drafted, if the engine drafts; the text is the same."""
    adapter: Adapter | None = None
    """Adapter added to the model; None for the model alone. Excludes `speculate`."""

    @property
    def organization(self) -> str:
        """The cache salt, because a gateway gives every organization its own salt."""
        return self.cache_salt

    @property
    def namespace(self) -> Namespace:
        """The namespace of the cached keys and values that the request may use."""
        if self.adapter is None:
            return self.cache_salt
        return AdaptedSalt(self.cache_salt, self.adapter.name, self.adapter.load_number)

    @property
    def choices(self) -> int:
        """Number of sequences."""
        return len(self.prompts) * self.choices_per_prompt
