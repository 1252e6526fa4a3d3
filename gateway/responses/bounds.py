"""Bounds that stored responses and conversations share."""

from __future__ import annotations

MOST_BYTES = 1024 * 1024 * 1024
"""Bytes of one organization's responses, and of its conversations."""
MOST_HISTORY_BYTES = 16 * 1024 * 1024
"""Bytes before a request that continues them."""
