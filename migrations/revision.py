"""Finds out whether a database is at the newest revision, without Alembic and SQLAlchemy: importing them takes longer
than all other database work of a start.
"""

from __future__ import annotations

from pathlib import Path

import asyncpg

from contracts.errors import ConfigError
from migrations.privileges import MISSING_ROLE, granting, missing, role_to_grant
from storage.engine import FAILURES, connect, redacted

VERSION_TABLE = "slipstream_version"
LOCK_ID = 0x736C6970
"""Key of the advisory lock, an arbitrary unused constant: the bytes of `slip`."""
LOCK_TIMEOUT_S = 60
"""Longest wait for another migrator, and for any table that a step needs."""
# The lock belongs to the transaction, not to the session: it ends with the commit or the rollback, even after a crash.
LOCK = f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'; SELECT pg_advisory_xact_lock({LOCK_ID})"


def revisions() -> set[str]:
    """The revisions of all migrations. A file's name begins with its revision."""
    return {path.name.partition("_")[0] for path in (Path(__file__).parent / "versions").glob("[0-9]*_*.py")}


def newest() -> str:
    """The revision of the newest migration."""
    return max(revisions())


async def is_newest(url: str, application_url: str) -> bool:
    """Whether the database is at the newest revision. Otherwise, `run.upgrade` is needed. Like it, this grants the role
    of `application_url` what the application needs.

    Raises ConfigError if the database is unreachable or has no such role.
    """
    role = role_to_grant(url, application_url)
    try:
        connection = await connect(url, name="slipstream-migrate")
    except FAILURES as error:
        raise ConfigError(f"database {redacted(url)}: {error}", param="database") from None
    try:
        async with connection.transaction():
            await connection.execute(LOCK)
            if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", VERSION_TABLE):
                return False
            if await connection.fetchval(f"SELECT array_agg(version_num) FROM {VERSION_TABLE}") != [newest()]:  # noqa: S608
                return False
            if role is not None:
                await connection.execute(granting(role))
        return True
    except asyncpg.InsufficientPrivilegeError:
        return False  # `migrate up` says what to do
    except asyncpg.PostgresError as error:
        if role is not None and error.sqlstate == MISSING_ROLE:
            raise missing(role) from None
        raise ConfigError(f"database {redacted(url)}: {error}", param="database") from None
    finally:
        await connection.close()
