"""Keeps freed memory in the process: a training step frees and takes again the same hundreds of megabytes, and pages
that go back to the system each time come back empty, one fault a page (8 % of a step on one core)."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Of glibc's mallopt(3)."""


def keep_freed_memory() -> bool:
    """From now on, for this process. Returns whether the C library can do it (glibc can)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
