"""Compiles Python functions to machine code at their first call, and caches the code for the next process."""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numba
from llvmlite import binding
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator

Kernel = Callable[..., Any]
logger = logging.getLogger(__name__)
FAST_MATH = {"contract", "reassoc", "nsz", "nnan"}
"""The compiler may reorder sums, but only once, independently of a call's arguments. No compared value is infinite or
NaN."""
UNUSED_S = 30 * 86_400.0
"""Code of other sources or another numba is removed when no process has used it for this time."""


class _OurFolder(CompileResultCacheImpl):  # type: ignore[misc]  # numba has no types
    # numba's other folders are not checked for other users
    _locator_classes = (UserProvidedCacheLocator,)


class KernelCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """Numba's cache of one kernel. If a file cannot be read or written, the kernel is compiled; the engine still
    runs."""

    _impl_class = _OurFolder
    must_save: ClassVar[bool] = False
    """Whether a file that cannot be written raises an error, in the process that only compiles."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code of this signature; None if it is not cached or was damaged and removed."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a damaged pickle can raise anything
            logger.warning(
                "cached code of kernel %s is damaged, so it is compiled again: %r", self._py_func.__name__, error
            )
            self._remove()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the code of this signature, or log why it is not cached."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _not_cached(self._py_func, error)

    def _remove(self) -> None:
        """Remove this kernel's files and all markers of compiled forms."""
        folder = Path(self.cache_path)
        files = folder.glob(f"{glob.escape(self._impl.filename_base)}.*nb[ic]")
        with contextlib.suppress(OSError):
            for path in (*folder.parent.glob("*.compiled"), *files):
                path.unlink(missing_ok=True)


def compiled(function: Kernel) -> Kernel:
    """Decorate a kernel, which takes only arrays and numbers: no interpreter lock, no bounds checks."""
    # numpy: division by zero does not raise, because a check would prevent vectorization
    options = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": FAST_MATH}
    kernel: Kernel = numba.njit(**options)(function)
    return kernel


@functools.cache
def cached(kernel: Any) -> Kernel:
    """Cache a kernel's code, with that of the kernels it calls, for the next process. Call it before the first call of
    a kernel that Python code calls."""
    if _cache_folder() is not None:
        try:
            kernel._cache = KernelCache(kernel.py_func)
        except (OSError, RuntimeError) as error:  # RuntimeError: numba cannot write to the folder
            _not_cached(kernel.py_func, error)
    result: Kernel = kernel
    return result


@functools.cache
def _cache_folder() -> Path | None:
    """A folder keyed by these sources and numba's version, because numba separates processors but notices only changes
    in a kernel's own file. None if no writable folder is ours alone, so that every process compiles."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = base.resolve()
        _require_no_swap(folder)
        for name in ("slipstream", "kernels", digest.hexdigest()[:16]):
            folder /= name
            is_new = not folder.exists()
            folder.mkdir(mode=0o700, exist_ok=True)
            _require_ours(folder)
        os.utime(folder)
        tempfile.TemporaryFile(dir=folder).close()  # it may have become read-only
        if is_new:
            _remove_unused(folder.parent)
    except (OSError, RuntimeError) as error:  # RuntimeError: an account without a home
        logger.warning("kernels cannot be cached, so every start compiles them: %s", error)
        return None
    numba.config.CACHE_DIR = str(folder)
    return folder


def marker_file(name: str) -> Path | None:
    """The file that exists if kernels of exactly these sources are cached for this processor, as numba requires; None
    if none can be cached."""
    folder = _cache_folder()
    if folder is None:
        return None
    digest = hashlib.sha256(f"{binding.get_host_cpu_name()} {sorted(binding.get_host_cpu_features().items())}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        status = path.stat()
        digest.update(f"{path} {status.st_mtime_ns} {status.st_size}".encode())
    return folder / f"{name}.{digest.hexdigest()[:16]}.compiled"


def _require_ours(folder: Path) -> None:
    """Raise PermissionError if another user could write to the folder, whose files are executed."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"{folder} must be a folder of uid {os.geteuid()} that no other user may write; chmod go-w it, or remove it"
        )


def _require_no_swap(folder: Path) -> None:
    """Raise PermissionError if another user could replace a folder below `folder`."""
    for each in (folder, *folder.parents):
        status = each.stat()
        swappable = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        if swappable or status.st_uid not in (0, os.geteuid()):
            raise PermissionError(
                f"{each} must belong to root or uid {os.geteuid()}, and no other user may rename entries in it; run "
                "chmod go-w, or set XDG_CACHE_HOME to another folder"
            )


def _remove_unused(folder: Path) -> None:
    """Remove code that no process has used for `UNUSED_S`. A process that still uses it compiles missing code."""
    for each in folder.iterdir():
        with contextlib.suppress(OSError):
            if each.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(each)


def _not_cached(function: Kernel, error: Exception) -> None:
    if KernelCache.must_save:
        raise error
    logger.warning("kernel %s cannot be cached, so the next start compiles it again: %s", function.__name__, error)
