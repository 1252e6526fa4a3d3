"""Returns freed memory to the system, if the C library is glibc."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

M_MMAP_THRESHOLD = -3
"""glibc's number of the option that sets the size from which a block gets its own mapping."""
LOADING_BYTES, SERVING_BYTES = 1 << 20, 32 << 20


def release() -> None:
    """Return the free memory that glibc keeps. It visits every page, so call it only after large work."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextlib.contextmanager
def released_at_once() -> Iterator[None]:
    """Return large blocks as soon as they are freed, and other memory at the end. After loading a model, glibc would
    otherwise keep fragments of a third of its size."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is None:
        yield
        return
    tune(M_MMAP_THRESHOLD, LOADING_BYTES)
    try:
        yield
    finally:
        # the size that glibc itself chooses after it frees such a block; serving reuses its blocks
        tune(M_MMAP_THRESHOLD, SERVING_BYTES)
        release()
