"""Chooses the memory for keys and values if the settings give none."""

from __future__ import annotations

SHARE = 4
"""An engine gets one part in this many of the free memory. Other engines, the databases and the gateways share the
rest. Memory without data is not taken from the system."""
MIN_BYTES = 256 * 1024 * 1024


def budget_bytes(free_bytes: int, token_bytes: int, context_tokens: int, max_running: int, page_tokens: int) -> int:
    """Bytes for all pages: a share of the free memory, at least one request of the longest kind, and at most
    `max_running` such requests. token_bytes: size of the keys and values of a token."""
    longest = -(-context_tokens // page_tokens) * page_tokens * token_bytes
    wanted = max(free_bytes // SHARE, min(MIN_BYTES, free_bytes), longest)
    return min(wanted, max(longest * max_running, MIN_BYTES))
