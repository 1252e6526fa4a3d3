"""Turns a Python function into machine code when it is first called, and caches the code for the next process."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding

Kernel = Callable[..., Any]
logger = logging.getLogger(__name__)
FAST_MATH = {"contract", "reassoc", "nsz", "nnan"}
"""Sums may be reordered, but once when the code is made: never depending on a call's arguments. No value is infinite or
NaN where a kernel compares."""


def compiled(function: Kernel) -> Kernel:
    """Decorates a kernel: no interpreter lock, no bounds checks. It sees arrays and numbers only."""
    # numpy: a division by zero does not raise; a check would prevent vectorization
    options = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": FAST_MATH}
    made: Kernel = numba.njit(**options)(function)
    return made


@functools.cache
def cached(kernel: Any) -> Kernel:
    """Cache a kernel's code for the next process, together with that of the kernels it calls; for the few kernels that
    Python calls, before the first call."""
    if _cache_folder() is not None:
        kernel.enable_caching()
    made: Kernel = kernel
    return made


@functools.cache
def _cache_folder() -> Path | None:
    """Returns a folder keyed by these sources and numba's version. Numba separates processors, but notices only changes
    in a kernel's own file. None: no folder is ours alone and writable, so every process compiles."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = base
        for name in ("slipstream", "kernels", digest.hexdigest()[:16]):
            folder /= name
            folder.mkdir(mode=0o700, exist_ok=True)
            _require_ours(folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: an account without a home
        logger.warning("kernels cannot be cached, so every start compiles them: %s", error)
        return None
    numba.config.CACHE_DIR = str(folder)
    return folder


def marker_file(name: str) -> Path | None:
    """The file that exists if kernels of these very files are cached for this processor, as numba demands; None: none
    are cached."""
    folder = _cache_folder()
    if folder is None:
        return None
    digest = hashlib.sha256(f"{binding.get_host_cpu_name()} {sorted(binding.get_host_cpu_features().items())}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        status = path.stat()
        digest.update(f"{path} {status.st_mtime_ns} {status.st_size}".encode())
    return folder / f"{name}.{digest.hexdigest()[:16]}.compiled"


def _require_ours(folder: Path) -> None:
    """Raise PermissionError where another user could write: files in it are executed."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"{folder} must be a folder of uid {os.geteuid()} that no other user may write; chmod go-w it, or remove it"
        )
