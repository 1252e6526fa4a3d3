"""Turns a Python function into machine code when it is first called, and keeps the code for the next process."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

Kernel = Callable[..., Any]
FAST_MATH = {"contract", "reassoc", "nsz", "nnan"}
"""Sums may be reordered, once and for all when the code is made: never by what a call is given. Nothing is infinite or
not a number where a kernel compares."""


def compiled(function: Kernel) -> Kernel:
    """Decorates a kernel: no interpreter lock, no bounds checks. It sees arrays and numbers only."""
    # numpy: a division by zero does not raise; a check would keep loops from becoming vectors
    options = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": FAST_MATH}
    made: Kernel = numba.njit(**options)(function)
    return made


@functools.cache
def kept(kernel: Any) -> Kernel:
    """`kernel`, its code kept for the next process together with that of the kernels it calls; for the few that Python
    calls, before the first call."""
    if _cache_folder() is not None:
        kernel.enable_caching()
    made: Kernel = kernel
    return made


@functools.cache
def _cache_folder() -> Path | None:
    """A folder for these very sources: numba itself notices a change of the kernel's own file only, not of those whose
    functions it calls. None: no folder can be written, so every process compiles."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "slipstream" / "kernels" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    numba.config.CACHE_DIR = str(folder)
    return folder
