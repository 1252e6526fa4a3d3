"""The two roles of a test's database: the one the product runs as, which all URLs name, and the owner of the tables."""

from __future__ import annotations

from infra.local.folders import APPLICATION_ROLE

OWNER = "slipstream"


def as_owner(url: str) -> str:
    """The same database as the role that may alter its tables: for what only a migration or a thief would do."""
    return url.replace(f"//{APPLICATION_ROLE}@", f"//{OWNER}@")


def as_application(owner_url: str) -> str:
    """The same database as the role that the product runs as."""
    return owner_url.replace(f"//{OWNER}@", f"//{APPLICATION_ROLE}@")
