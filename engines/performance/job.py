"""One request inside a modelled engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engines.performance.block_cache import Block


@dataclass(slots=True, eq=False)
class Job:
    """A mutable request, owned by the engine once submitted."""

    id: str
    prompt_tokens: int
    output_tokens: int
    """At least 1; the engine does not look ahead."""
    blocks: Sequence[Block] = ()
    """The prompt's whole blocks."""
    answer_blocks: Sequence[Block] = ()
    """Whole blocks of prompt and answer together, cached when the job ends; empty if no later prompt is known to repeat
    the answer."""
    cached_tokens: int = 0
    """Prompt tokens found in the cache when the job first started."""
    to_prefill: int = field(init=False)
    """Tokens of the prompt; after a retraction, the generated tokens too."""
    prefilled: int = 0
    generated: int = 0
    """Updated at a retraction and at the end; in between, the engine counts steps."""
    held_blocks: Sequence[Block] = ()
    """Blocks that the job has locked in the cache."""
    private_tokens: int = 0
    """Tokens of memory beyond the held blocks at `started_at_step`."""
    started_at_step: int = 0
    ends_at_step: int = 0
    running: bool = False
    ended: bool = False
    retractions: int = 0

    def __post_init__(self) -> None:
        self.to_prefill = self.prompt_tokens
