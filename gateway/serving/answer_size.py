"""Limits the size of an engine's response: an engine that never stops writing would fill this gateway's memory."""

from __future__ import annotations

from contracts.errors import EngineFailed
from contracts.generation import Generation
from engines.http.event_splitter import MAX_EVENT_BYTES

BYTES_PER_TOKEN = 2_048
"""Bytes allowed per token. An event with one token has a few hundred bytes, and a tool call's event twice that."""
BYTES_PER_ALTERNATIVE = 256
"""Bytes of a log probability, with its token's text and bytes."""


class AnswerSize:
    """Counts the bytes of one attempt's response and enforces their limit."""

    __slots__ = ("_limit_bytes", "_received_bytes")

    def __init__(self, generation: Generation) -> None:
        sampling = generation.sampling
        per_token = BYTES_PER_TOKEN
        if sampling.logprobs is not None:
            per_token += BYTES_PER_ALTERNATIVE * (1 + sampling.logprobs)
        # one more event, because an echoed prompt, the usage and the beginning of a choice each arrive in one
        self._limit_bytes = MAX_EVENT_BYTES + generation.choices * sampling.max_tokens * per_token
        self._received_bytes = 0

    def add(self, count: int) -> None:
        """Add received bytes. Raises EngineFailed once they exceed the limit."""
        self._received_bytes += count
        if self._received_bytes > self._limit_bytes:
            raise EngineFailed(
                "The engine generated more than the response may have.",
                detail=f"more than {self._limit_bytes} bytes; max_tokens is not observed",
            )
