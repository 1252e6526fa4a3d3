"""One request inside a modelled engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engines.performance.block_cache import Block


@dataclass(slots=True, eq=False)
class Job:
    """Mutable; owned by the engine once submitted."""

    id: str
    prompt_tokens: int
    output_tokens: int
    """At least 1; the engine does not look ahead."""
    blocks: Sequence[Block] = ()
    """The prompt's whole blocks."""
    answer_blocks: Sequence[Block] = ()
    """Those of prompt and answer together, cached when the job ends; empty when the answer's text is not known to come
    back."""
    cached_tokens: int = 0
    """Of the prompt, found when it was first started."""
    to_prefill: int = field(init=False)
    """Prompt, and after a retraction what had been generated."""
    prefilled: int = 0
    generated: int = 0
    """Known at a retraction or at the end; in between the engine counts steps."""
    held_blocks: Sequence[Block] = ()
    """Locked in the cache."""
    private_tokens: int = 0
    """Memory beyond the held blocks, as of `started_at_step`."""
    started_at_step: int = 0
    ends_at_step: int = 0
    running: bool = False
    ended: bool = False
    retractions: int = 0

    def __post_init__(self) -> None:
        self.to_prefill = self.prompt_tokens
