"""One request inside a modelled engine."""

from __future__ import annotations

from collections.abc import Sequence

from engines.performance.block_cache import Block


class Job:
    """Mutable; owned by the engine once submitted.

    blocks: the prompt's whole blocks. answer_blocks: those of prompt and answer together, cached when the job ends;
    empty when the answer's text is not known to come back. output_tokens: at least 1; the engine does not look ahead.
    """

    __slots__ = (
        "answer_blocks", "blocks", "cached_tokens", "ended", "ends_at_step", "generated", "held_blocks", "id",
        "output_tokens", "prefilled", "private_tokens", "prompt_tokens", "retractions", "running", "started_at_step",
        "to_prefill",
    )  # fmt: skip

    def __init__(
        self,
        job_id: str,
        prompt_tokens: int,
        output_tokens: int,
        blocks: Sequence[Block] = (),
        answer_blocks: Sequence[Block] = (),
    ) -> None:
        self.id = job_id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.blocks = blocks
        self.answer_blocks = answer_blocks
        self.cached_tokens = 0
        """Of the prompt, found when it was first started."""
        self.to_prefill = prompt_tokens
        """Prompt, and after a retraction what had been generated."""
        self.prefilled = 0
        self.generated = 0
        """Known at a retraction or at the end; in between the engine counts steps."""
        self.held_blocks: Sequence[Block] = ()
        """Locked in the cache."""
        self.private_tokens = 0
        """Memory beyond the held blocks, as of `started_at_step`."""
        self.started_at_step = 0
        self.ends_at_step = 0
        self.running = False
        self.ended = False
        self.retractions = 0
