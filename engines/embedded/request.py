"""A request to the engine: prompts as token ids, and the sampling. No HTTP, no templates."""

from __future__ import annotations

import msgspec

from engines.embedded.grammar.guide import Guide
from engines.embedded.kv.namespace import AdaptedSalt, Namespace
from engines.embedded.lora.adapter import Adapter
from engines.tokenizer.healing import Opening


class Sampling(msgspec.Struct, frozen=True):
    """The choice of tokens, and the conditions to stop."""

    max_tokens: int
    """0: nothing is generated; the prompt is only computed."""
    temperature: float = 1.0
    """0: always the likeliest token."""
    top_p: float = 1.0
    top_k: int = 0
    """0: all tokens."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the likeliest."""
    repetition_penalty: float = 1.0
    """Divides the positive logits, and multiplies the others, of tokens that the prompt or the output holds; 1: off."""
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    """Ids that end the text, the model's own end tokens included unless they are to be ignored."""
    min_tokens: int = 0
    """None of `stop_ids` is picked before this many tokens are generated."""
    logprobs: int | None = None
    """Alternatives reported per token; 0: the chosen token alone; None: off."""
    score_prompt: bool = False
    """Report the prompt's tokens too, except the first, before the generated ones; needs `logprobs`."""
    pools_all: bool = False
    """Every token of the prompt has to be computed: the vector is their mean."""


class Request(msgspec.Struct, frozen=True):
    """`choices_per_prompt` sequences for each prompt, numbered prompt by prompt."""

    rid: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: Sampling
    choices_per_prompt: int = 1
    priority: int = 0
    """Higher is admitted first; equal ones in order of arrival."""
    start_within_s: float | None = None
    """A request that waits longer than this for its start is refused; None: no limit."""
    cache_salt: str = ""
    """Prompts with different salts never share cached keys and values."""
    guide: Guide | None = None
    """The required format of the output."""
    grammar_s: float = 0.0
    """Seconds that its preparation took."""
    opening: Opening | None = None
    """A text that the output must begin with; it counts as generated and is not delivered. Not together with
    `guide`."""
    speculate: bool = True
    """Tokens may be drafted where the engine does so; the text is the same."""
    adapter: Adapter | None = None
    """Adapter added to the model; None: the model alone. Not together with `speculate`."""

    @property
    def organization(self) -> str:
        """The cache salt: a gateway gives every organization a salt of its own."""
        return self.cache_salt

    @property
    def namespace(self) -> Namespace:
        """The namespace of the cached keys and values that it may use."""
        if self.adapter is None:
            return self.cache_salt
        return AdaptedSalt(self.cache_salt, self.adapter.name, self.adapter.load_number)

    @property
    def choices(self) -> int:
        """Number of sequences."""
        return len(self.prompts) * self.choices_per_prompt
