"""Chooses the memory for keys and values where the settings give none."""

from __future__ import annotations

SHARE = 4
"""One part in this many of the free memory is an engine's: other engines, the databases and the gateways share the
rest. Memory that nothing was written to is not taken."""
MIN_BYTES = 256 * 1024 * 1024


def budget_bytes(free_bytes: int, token_bytes: int, context_tokens: int, max_running: int, page_tokens: int) -> int:
    """Bytes for all pages: a share of the free memory, one request of the longest kind at least, and no more than
    `max_running` such requests fill. token_bytes: keys and values of a token."""
    longest = -(-context_tokens // page_tokens) * page_tokens * token_bytes
    wanted = max(free_bytes // SHARE, min(MIN_BYTES, free_bytes), longest)
    return min(wanted, max(longest * max_running, MIN_BYTES))
