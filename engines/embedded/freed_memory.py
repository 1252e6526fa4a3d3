"""Returns freed memory to the system, where the C library is glibc."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

M_MMAP_THRESHOLD = -3
"""glibc's number for the size from which a block is mapped alone."""
LOADING_BYTES, SERVING_BYTES = 1 << 20, 32 << 20


def release() -> None:
    """Return what is free now; glibc keeps it otherwise. It looks at every page: for the end of something large."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextlib.contextmanager
def released_at_once() -> Iterator[None]:
    """Return large blocks as soon as they are freed, and all else at the end: of loading a model, glibc would keep a
    third of its size in pieces."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is None:
        yield
        return
    tune(M_MMAP_THRESHOLD, LOADING_BYTES)
    try:
        yield
    finally:
        # glibc's own choice once it has freed a block of that size: serving reuses its blocks
        tune(M_MMAP_THRESHOLD, SERVING_BYTES)
        release()
