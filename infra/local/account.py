"""The unprivileged account that a child runs under if we are root, and the check whether it can reach a path."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError

OWN = "slipstream"
SHARED = "nobody"


class Account(msgspec.Struct, frozen=True):
    """A user of this machine. Children drop to its uid and gid and lose every supplementary group."""

    name: str
    uid: int
    gid: int

    def reaches(self, path: Path) -> bool:
        """Whether this account may pass every folder above `path` and read (for a folder: enter) `path` itself.

        It checks mode bits alone: they decide for an account without groups or capabilities.
        """
        resolved = path.resolve()
        return all(self._may(folder, stat.S_IXOTH) for folder in resolved.parents) and self._may(
            resolved, stat.S_IXOTH | stat.S_IROTH if resolved.is_dir() else stat.S_IROTH
        )

    def dropping(self) -> dict[str, Any]:
        """The arguments of `subprocess` that run a child under this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def _may(self, path: Path, bits_other: int) -> bool:
        status = path.stat()
        if status.st_uid == self.uid:
            bits = bits_other << 6
        elif status.st_gid == self.gid:
            bits = bits_other << 3
        else:
            bits = bits_other
        return status.st_mode & bits == bits


def account_for_postgres(name: str, cluster: Path) -> Account | None:
    """The account that PostgreSQL must drop to, or None if we are an ordinary user and keep our own account.

    name: if empty, the owner of an existing cluster, else `slipstream` if the machine has it, else `nobody`. Every
    other process of the account can reach the cluster, through /proc if not by path. Raises ConfigError if we are root
    and the account does not exist or is root itself.
    """
    if os.geteuid() != 0:
        return None
    name = name or _owner_of(cluster) or (OWN if _exists(OWN) else SHARED)
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(
            f"local.postgres_account: this machine has no account {name!r}; name an ordinary one, "
            "or start Slipstream as an ordinary user",
            param="local.postgres_account",
        ) from None
    if entry.pw_uid == 0:
        raise ConfigError(
            f"local.postgres_account: {name!r} is root and PostgreSQL refuses to run as root; name an ordinary account",
            param="local.postgres_account",
        )
    return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _owner_of(cluster: Path) -> str | None:
    """The account that owns an existing cluster; an account created later does not take the cluster over."""
    try:
        owner = (cluster / "PG_VERSION").stat().st_uid
        return pwd.getpwuid(owner).pw_name if owner != 0 else None
    except (FileNotFoundError, KeyError):
        return None
