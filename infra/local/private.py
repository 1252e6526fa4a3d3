"""Folders and files that only their owner may enter or read, made safely even inside a shared temporary folder."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from pathlib import Path

from contracts.errors import ConfigError


def claim_folder(path: Path, *, mode: int = 0o700, owner: tuple[int, int] | None = None) -> Path:
    """Make `path` and its parents, or reuse a folder that is already ours; give it `mode` and `owner` (uid, gid).

    Raises ConfigError with one sentence if it cannot be made, is not a folder, or belongs to another account.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=mode, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise folder_error(path, error) from None
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path}: is not a folder; remove it or choose another data folder with --data")
    expected = {os.geteuid()} | ({owner[0]} if owner else set())
    if status.st_uid not in expected:
        raise ConfigError(
            f"{path}: belongs to uid {status.st_uid}, we are uid {os.geteuid()}; start Slipstream as that user or "
            "choose another data folder with --data"
        )
    try:
        if owner is not None and (status.st_uid, status.st_gid) != owner:
            os.chown(path, *owner)
        if stat.S_IMODE(status.st_mode) != mode:
            path.chmod(mode)
    except OSError as error:
        raise folder_error(path, error) from None
    return path


def secret_text(path: Path) -> str:
    """The secret in the file `path`, created (256 random bits, mode 0600) on first use.

    Raises ConfigError if the file cannot be read or written, or is empty.
    """
    try:
        if not path.exists():
            # Written to a temporary file and linked: neither a second process nor a crash leaves half a secret.
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                _write(temporary, secrets.token_hex(32).encode(), 0o600)
                path.hardlink_to(temporary)
            except FileExistsError:
                pass
            finally:
                temporary.unlink(missing_ok=True)
        text = path.read_text().strip()
    except OSError as error:
        raise folder_error(path, error) from None
    if not text:
        raise ConfigError(f"{path}: is empty; restore it from a backup, or remove it to make a new secret")
    return text


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file, whole or not at all: a link or a pipe is replaced, and a reader sees the old content or the new.

    Raises OSError, after which no temporary file is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(temporary, content, mode)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _write(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def folder_error(path: Path, error: OSError) -> ConfigError:
    """The error for a path that cannot be used: one sentence with the remedy."""
    reason, remedy = (error.strerror or str(error)).lower(), "choose another data folder with --data"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason, remedy = f"{reason} ({free_space(path)} free)", f"free some, or {remedy}"
    return ConfigError(f"{path}: {reason}; {remedy}")


def free_space(path: Path) -> str:
    """The space that an ordinary user has on the disk of `path`, or of the nearest folder above it that exists."""
    while not path.exists():
        path = path.parent
    return f"{shutil.disk_usage(path).free / 1e6:,.1f} MB"
