"""How a machine's memory is divided: weights, a reserve for the runtime, and what is left for keys and values.

What is left decides how many requests of which length run at once: their product is bounded, not either of them. It is
an upper bound: workspaces, communication buffers and the allocator's slack come out of the reserve, whose size only a
measurement tells.
"""

from __future__ import annotations

import msgspec


class MemoryDivision(msgspec.Struct, frozen=True):
    """Of all cards of a replica together."""

    total_bytes: float
    reserve_bytes: float
    """Activations, workspaces, the allocator's slack."""
    weights_bytes: float
    kv_bytes_per_token: float
    adapter_bytes: float = 0.0
    """Places for LoRA adapters."""

    @property
    def kv_bytes(self) -> float:
        """Left for keys and values; below 0 the weights do not fit."""
        return self.total_bytes - self.reserve_bytes - self.weights_bytes - self.adapter_bytes

    @property
    def kv_tokens(self) -> int:
        """Tokens whose keys and values fit, of all requests together."""
        return max(int(self.kv_bytes / self.kv_bytes_per_token), 0)

    def context_tokens(self, concurrent: int) -> int:
        """The longest context that so many requests can all have at once."""
        return max(int(self.kv_bytes / concurrent / self.kv_bytes_per_token), 0)

    def concurrent(self, context_tokens: float) -> int:
        """Requests of this length that run at once."""
        return max(int(self.kv_bytes / (context_tokens * self.kv_bytes_per_token)), 0)

    def admits(self, live_tokens: int, new_tokens: int) -> bool:
        """Whether a request fits beside those that are live."""
        return (live_tokens + new_tokens) * self.kv_bytes_per_token <= self.kv_bytes
