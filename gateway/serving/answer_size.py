"""How large an engine's answer may be: an engine that writes on and on would fill this gateway's memory."""

from __future__ import annotations

from contracts.errors import EngineFailed
from contracts.generation import Generation
from engines.http.event_splitter import MAX_EVENT_BYTES

BYTES_PER_TOKEN = 2_048
"""An event of one token has a few hundred, and one of a tool's call twice that."""
BYTES_PER_ALTERNATIVE = 256
"""Of a log probability, with its token's text and bytes."""


class AnswerSize:
    """What has come of one attempt's answer, in the engine's bytes, and the most that can."""

    __slots__ = ("_most_bytes", "_received_bytes")

    def __init__(self, generation: Generation) -> None:
        sampling = generation.sampling
        per_token = BYTES_PER_TOKEN
        if sampling.logprobs is not None:
            per_token += BYTES_PER_ALTERNATIVE * (1 + sampling.logprobs)
        # one event more: a prompt that is echoed comes in one, and so do usages and what a choice begins with
        self._most_bytes = MAX_EVENT_BYTES + generation.choices * sampling.max_tokens * per_token
        self._received_bytes = 0

    def add(self, count: int) -> None:
        """So many bytes have come. Raises EngineFailed once they are more than the answer can be."""
        self._received_bytes += count
        if self._received_bytes > self._most_bytes:
            raise EngineFailed(
                "The engine wrote more than the answer can be.",
                detail=f"more than {self._most_bytes} bytes; max_tokens is not kept to",
            )
