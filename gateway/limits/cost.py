"""What one request takes from its limits."""

from __future__ import annotations

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """Before it runs: the most it can use. Afterwards: what it used. micro: money, in millionths."""

    input_tokens: int = 0
    output_tokens: int = 0
    micro: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and output together."""
        return self.input_tokens + self.output_tokens
