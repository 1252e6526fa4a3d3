"""What a request has become once its model is known and its prompt is counted, whichever format it came in."""

from __future__ import annotations

import msgspec

from contracts.desired_state import Model
from contracts.generation import Generation
from contracts.prefix import PrefixChain
from engines.drivers.base import Capabilities
from engines.tokenizer.off_loop import OffLoopTokenizer


class Target(msgspec.Struct, frozen=True):
    """The model asked for, with what is known about counting for it."""

    model: Model
    capabilities: Capabilities
    tokenizer: OffLoopTokenizer | None


class Prepared(msgspec.Struct, frozen=True):
    """A Generation and its price in tokens."""

    generation: Generation
    prompt_tokens: int
    """All prompts together; exact when the target has a tokenizer, else an estimate."""
    exact: bool
    prompt_tokens_bound: int = 0
    """The most that the engine can count for all prompts: what is reserved of budgets."""
    session: str = ""
    """What the client names its conversation or user by, for requests that belong together; never sent to an engine."""
    chain: PrefixChain = PrefixChain("bytes", b"")
    """What the router knows the prompt by."""

    @property
    def cost_tokens(self) -> int:
        """What is reserved: all prompts, and the output limit for every choice."""
        return self.prompt_tokens + self.generation.choices * self.generation.sampling.max_tokens
