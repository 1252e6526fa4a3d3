"""Sums and smooths the reports of one pool's engines about cached prompts and memory."""

from __future__ import annotations

from contracts.prefix import BLOCK_TOKENS

TOKENS_PER_BLOCK = 64.0
"""Used before any prompt has been seen: 256 bytes at four bytes per token."""
PROMPT_DECAY = 0.998
BEYOND_STEP = 0.05
BEYOND_LIMIT_TOKENS = 2 * BLOCK_TOKENS
RETRACTION_STEP = 1.25
RETRACTIONS_AT_ONCE = 4
SAFETY_LIMIT = 3.0
SAFETY_DECAY = 0.995


class CacheReports:
    """The cache reports of one pool; mutable."""

    def __init__(self) -> None:
        self.known = False
        """Whether the engines report the cached part of a prompt. Before the first such report, 0 has no meaning."""
        self.predicted_tokens = 0
        self.reported_tokens = 0
        """Predicted and reported cached tokens of all leases that ended with a usage."""
        self.beyond_tokens = 0.0
        """Tokens that engines find cached after the last whole block known to be cached; see `saw_beyond`."""
        self.safety = 1.0
        """Factor on expected growth: raised when an engine runs out of memory, lowered slowly otherwise."""
        self.retractions = 0
        """Requests that engines evicted from memory."""
        self.draft_tokens = 0
        """Tokens that engines drafted, for engines whose load reports count them."""
        self.accepted_draft_tokens = 0
        self._prompt_tokens = 0.0
        self._prompt_blocks = 0.0

    @property
    def tokens_per_block(self) -> float:
        """The learnt mean over prompts whose tokens and blocks are both known."""
        return self._prompt_tokens / self._prompt_blocks if self._prompt_blocks >= 1 else TOKENS_PER_BLOCK

    def saw_prompt(self, tokens: int, blocks: int) -> None:
        """Learn from a prompt of `tokens` tokens and `blocks` whole blocks."""
        if blocks:
            self._prompt_tokens = PROMPT_DECAY * self._prompt_tokens + tokens
            # half a block is cut off on average
            self._prompt_blocks = PROMPT_DECAY * self._prompt_blocks + blocks + 0.5

    def saw_beyond(self, tokens: int) -> None:
        """Learn from a prompt of which an engine had `tokens` more tokens cached than the expected whole blocks.

        Texts diverge, and responses are continued, in the middle of a block. Far fewer tokens mean eviction, which the
        index learns. Far more tokens come from another request.
        """
        if 0 <= tokens <= BEYOND_LIMIT_TOKENS:
            self.beyond_tokens += BEYOND_STEP * (tokens - self.beyond_tokens)

    def retracted(self, times: int) -> None:
        """Record that an engine ran out of memory and evicted requests."""
        self.retractions += times
        for _ in range(min(times, RETRACTIONS_AT_ONCE)):
            self.safety = min(self.safety * RETRACTION_STEP, SAFETY_LIMIT)

    def ended_well(self) -> None:
        """Record that a response ended normally."""
        self.safety = max(1.0, self.safety * SAFETY_DECAY)
