"""Defines a request's cost in the units of its limits."""

from __future__ import annotations

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """A request's upper bound before it runs, and its usage afterwards. micro: money, in millionths."""

    input_tokens: int = 0
    output_tokens: int = 0
    micro: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and output together."""
        return self.input_tokens + self.output_tokens
