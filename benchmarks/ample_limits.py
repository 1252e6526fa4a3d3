"""Limits of a key that no benchmark's load reaches."""

from __future__ import annotations

AMPLE_LIMITS = ("--requests-per-minute", "10000000", "--tokens-per-minute", "1000000000", "--max-concurrency", "10000")
"""Options of `keys create`. They are set so that each request is counted."""
