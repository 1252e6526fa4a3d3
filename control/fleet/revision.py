"""Reads and writes versions of the desired state in a caller's transaction. Every change of the fleet happens here,
together with all other changes of its transaction.

    async with connection.transaction():
        written = await write(connection, edit, actor=actor.name, action="model.put")
        ...
        await record(connection, actor, written.change)     # the transaction's last act
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from contracts.desired_state import DesiredState
from contracts.errors import VersionMismatch
from control.fleet.difference import differences
from control.fleet.edits import Edit
from gateway.desired import document
from storage.audit_log import Change

LOCK_ID = 0x64657369
"""Key of the writers' advisory lock, an arbitrary unused constant: the bytes of `desi`."""
LOCK = "SELECT pg_advisory_xact_lock($1)"
# The document is read as text, because connections decode jsonb differently.
NEWEST = """
SELECT version, document::text AS document, settings_digest, action, actor, created_at
  FROM gateway.desired_states ORDER BY version DESC LIMIT 1
"""
AT = """
SELECT version, document::text AS document, settings_digest, action, actor, created_at
  FROM gateway.desired_states WHERE version = $1
"""
SINCE = """
SELECT version, document::text AS document, settings_digest, action, actor, created_at
  FROM gateway.desired_states
 WHERE version >= coalesce((SELECT max(version) FROM gateway.desired_states WHERE created_at <= $1), 0)
 ORDER BY version
"""
INSERT = """
INSERT INTO gateway.desired_states (version, document, settings_digest, action, actor)
SELECT coalesce(max(version), 0) + 1, $1::jsonb, $2, $3, $4 FROM gateway.desired_states RETURNING version
"""


class Revision(msgspec.Struct, frozen=True):
    """One version. Version 0 is the fleet before the first."""

    state: DesiredState
    settings_digest: str = ""
    """Digest of the settings' fleet that it descends from, before any edit."""
    action: str = ""
    """The operation that created it, such as `model.put`. Empty in rows of earlier releases, which settings created."""
    actor: str = ""
    created_at: datetime | None = None


class Written(msgspec.Struct, frozen=True):
    """Result of a write. after is before if the edit changed nothing; no version is written then."""

    before: Revision
    after: Revision
    change: Change
    """The audit log's row, which the caller writes last."""

    @property
    def differences(self) -> list[str]:
        """The differences, a line each."""
        return differences(self.before.state, self.after.state)


async def newest(connection: asyncpg.Connection[Any]) -> Revision:
    """The version in force. Raises ConfigError for a version of a newer release."""
    row = await connection.fetchrow(NEWEST)
    return Revision(DesiredState(version=0)) if row is None else _revision(row)


async def at(connection: asyncpg.Connection[Any], version: int) -> Revision | None:
    """The version of this number; None if it does not exist. Raises ConfigError like `newest`."""
    row = await connection.fetchrow(AT, version) if 0 < version < 2**63 else None
    return None if row is None else _revision(row)


async def since(connection: asyncpg.Connection[Any], moment: datetime) -> list[Revision]:
    """The version in force at that time and all later ones, oldest first. Raises ConfigError like `newest`."""
    return [_revision(row) for row in await connection.fetch(SINCE, moment)]


async def lock(connection: asyncpg.Connection[Any]) -> None:
    """Exclude other writers until the transaction ends, so that the newest version stays the newest."""
    await connection.execute(LOCK, LOCK_ID)


async def write(
    connection: asyncpg.Connection[Any],
    edit: Edit,
    *,
    actor: str,
    action: str,
    expected_version: int | None = None,
    dry_run: bool = False,
    settings_digest: str | None = None,
) -> Written:
    """Apply `edit` to the newest version, and write the result. Call it in a transaction, which excludes other writers.

    actor: the author's name in the audit log. expected_version: refuse unless this is the newest. dry_run: write
    nothing. settings_digest: of the settings that are applied; None for an edit, which keeps the digest of the version
    before. Raises the errors of `edit`, VersionMismatch, and ConfigError for a version of a newer release or a state
    that contradicts itself.
    """
    await lock(connection)
    before = await newest(connection)
    require_version(before, expected_version)
    state = edit(before.state)
    state.check()
    digest = before.settings_digest if settings_digest is None else settings_digest
    after = before
    if (state.models, state.pools, digest) != (before.state.models, before.state.pools, before.settings_digest):
        text = document.encode(state.models, state.pools)
        version = before.state.version + 1
        if not dry_run:
            version = await connection.fetchval(INSERT, text, digest, action, actor)
        after = Revision(msgspec.structs.replace(state, version=version), digest, action, actor)
    change = Change(
        action=f"desired_state.{action}",
        subject_id=str(after.state.version),
        organization_id=None,
        before=before.state if before.state.version else None,
        after=after.state,
    )
    return Written(before, after, change)


def require_version(newest: Revision, expected_version: int | None) -> None:
    """Raise VersionMismatch unless the newest version is the expected one; None accepts any."""
    if expected_version not in (None, newest.state.version):
        who = f": {newest.actor} changed it ({newest.action}). " if newest.actor else ". "
        raise VersionMismatch(
            f"The fleet is at version {newest.state.version}, not {expected_version}{who}"
            "Read the current state and repeat the change with that version."
        )


def digest_of(state: DesiredState) -> str:
    """Digest of models and pools, without the version. All releases that decode them alike have the same digest."""
    state = document.decode(0, document.encode(state.models, state.pools))  # a weight of 1 becomes 1.0
    content = msgspec.json.encode({"models": state.models, "pools": state.pools}, order="sorted")
    return hashlib.sha256(content).hexdigest()


def _revision(row: asyncpg.Record) -> Revision:
    state = document.decode(row["version"], row["document"])
    # A row of an earlier release came from settings, so its own digest is theirs.
    digest = row["settings_digest"] or digest_of(state)
    return Revision(state, digest, row["action"] or "", row["actor"] or "", row["created_at"])
