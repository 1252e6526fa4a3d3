"""Limits the size of an engine's response: an engine that never stops writing would fill this gateway's memory."""

from __future__ import annotations

from contracts.errors import EngineFailed
from contracts.generation import Generation
from engines.http.event_splitter import MAX_EVENT_BYTES

BYTES_PER_TOKEN = 2_048
"""An event of one token has a few hundred bytes, and one of a tool call twice that."""
BYTES_PER_ALTERNATIVE = 256
"""Bytes of a log probability, with its token's text and bytes."""


class AnswerSize:
    """Bytes received of one attempt's response, and their limit."""

    __slots__ = ("_most_bytes", "_received_bytes")

    def __init__(self, generation: Generation) -> None:
        sampling = generation.sampling
        per_token = BYTES_PER_TOKEN
        if sampling.logprobs is not None:
            per_token += BYTES_PER_ALTERNATIVE * (1 + sampling.logprobs)
        # one more event: an echoed prompt comes in one, and so do usages and the beginning of a choice
        self._most_bytes = MAX_EVENT_BYTES + generation.choices * sampling.max_tokens * per_token
        self._received_bytes = 0

    def add(self, count: int) -> None:
        """Add received bytes. Raises EngineFailed once they exceed the limit."""
        self._received_bytes += count
        if self._received_bytes > self._most_bytes:
            raise EngineFailed(
                "The engine wrote more than the answer can be.",
                detail=f"more than {self._most_bytes} bytes; max_tokens is not observed",
            )
