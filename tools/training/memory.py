"""Keeps freed memory in the process: each training step frees and allocates the same hundreds of megabytes, and a page
that went back to the system costs a page fault (8 % of a step on one core)."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt(3)."""


def keep_freed_memory() -> bool:
    """Keep freed memory from now on. Returns whether the C library can do it (glibc can)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
