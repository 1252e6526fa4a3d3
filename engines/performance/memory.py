"""Divides a machine's memory into weights, a reserve for the runtime, and the rest for keys and values.

The rest limits the product of the number of concurrent requests and their length. It is an upper bound: workspaces,
communication buffers and the allocator's slack come out of the reserve, whose size only a measurement can show.
"""

from __future__ import annotations

import msgspec


class MemoryDivision(msgspec.Struct, frozen=True):
    """Sizes over all GPUs of a replica together."""

    total_bytes: float
    reserve_bytes: float
    """For activations, workspaces and the allocator's slack."""
    weights_bytes: float
    kv_bytes_per_token: float
    adapter_bytes: float = 0.0
    """Slots for LoRA adapters."""

    @property
    def kv_bytes(self) -> float:
        """Memory left for keys and values; negative if the weights do not fit."""
        return self.total_bytes - self.reserve_bytes - self.weights_bytes - self.adapter_bytes

    @property
    def kv_tokens(self) -> int:
        """Tokens of all requests together whose keys and values fit."""
        return max(int(self.kv_bytes / self.kv_bytes_per_token), 0)

    def context_tokens(self, concurrent: int) -> int:
        """The longest context that `concurrent` requests can all have at once."""
        return max(int(self.kv_bytes / concurrent / self.kv_bytes_per_token), 0)

    def concurrent(self, context_tokens: float) -> int:
        """The number of requests of this length that can run at once."""
        return max(int(self.kv_bytes / (context_tokens * self.kv_bytes_per_token)), 0)

    def admits(self, live_tokens: int, new_tokens: int) -> bool:
        """Whether a request of `new_tokens` fits in addition to the live requests."""
        return (live_tokens + new_tokens) * self.kv_bytes_per_token <= self.kv_bytes
