"""Migrates a database up or down to a revision, from Python alone, without an ini file or other configuration.

One run is one transaction that holds an advisory lock, so it is applied completely or not at all. Of several processes
that start at once, one migrates, and the others wait and then find nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.util import CommandError
from psycopg.errors import InsufficientPrivilege
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool

from contracts.errors import ConfigError
from migrations.privileges import MISSING_ROLE, granting, missing, role_to_grant
from migrations.revision import LOCK, VERSION_TABLE, revisions
from storage.engine import redacted, sqlalchemy_url

OTHER_TABLES = "42"
"""Class of SQLSTATE for objects that are missing or already exist."""


def upgrade(url: str, revision: str = "head", *, application_url: str | None = None) -> None:
    """Migrate up to `revision`, as the role of `url`, which owns the tables. If `application_url` has another role,
    grant it what the application needs.

    Raises ConfigError if the database is unreachable or refuses the role, or the revision is unknown.
    """
    role = role_to_grant(url, application_url)

    def action(config: Config) -> None:
        command.upgrade(config, revision)
        if role is not None:
            _grant(config.attributes["connection"], role)

    _run(url, action)


def downgrade(url: str, revision: str) -> None:
    """Migrate down to `revision`, or to nothing with `base`. Tables and their rows are deleted. Raises ConfigError."""
    _run(url, lambda config: command.downgrade(config, revision))


def current(url: str) -> str | None:
    """The database's revision; None if it was never migrated. Raises ConfigError."""
    with _connection(url) as connection:
        return _revision(connection)


def _revision(connection: Connection) -> str | None:
    """The database's revision, if any. Raises ConfigError if its table has several or an empty one."""
    found = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_heads()
    if len(found) > 1 or "" in found:
        raise ConfigError(
            f"the database's table {VERSION_TABLE} must hold one revision, and holds {', '.join(map(repr, found))}: it "
            "was changed by hand; restore a backup"
        )
    return found[0] if found else None


def _other_release(revision: str) -> str:
    """The error for a database at a revision that this release does not have."""
    oldest, newest = min(revisions()), max(revisions())
    if revision < oldest:
        return (
            f"the database is at revision {revision}, which is older than release 0.1.0; this release upgrades from "
            f"{oldest}: run `slipstream config migrate up` of release 0.1.0 first, then this one again"
        )
    return (
        f"the database is at revision {revision}, and this release has {oldest} to {newest}: run the release that "
        "migrated it"
    )


def _run(url: str, action: Callable[[Config], None]) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _connection(url) as connection, connection.begin():
        connection.exec_driver_sql(LOCK)
        config.attributes["connection"] = connection
        at = _revision(connection)
        if at is not None and at not in revisions():
            raise ConfigError(_other_release(at))
        try:
            action(config)
        except CommandError as error:
            raise ConfigError(f"migrations: {error}") from None
        except sqlalchemy.exc.ProgrammingError as error:
            text = f"database {redacted(url)}: {str(error.orig).splitlines()[0]}"
            if isinstance(error.orig, InsufficientPrivilege):
                raise ConfigError(
                    f"{text}; migrations need the role that owns the tables, in local.migration_database_url",
                    param="local.migration_database_url",
                ) from None
            if not (getattr(error.orig, "sqlstate", None) or "").startswith(OTHER_TABLES):
                raise
            raise ConfigError(
                f"{text}; the tables are not those of revision {at or 'none'}, at which {VERSION_TABLE} says that they "
                "are: restore a backup, or give an empty database"
            ) from error


def _grant(connection: Connection, role: str) -> None:
    try:
        connection.exec_driver_sql(granting(role).replace("%", "%%"))
    except sqlalchemy.exc.ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != MISSING_ROLE:
            raise
        raise missing(role) from None


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except sqlalchemy.exc.OperationalError as error:
        raise ConfigError(f"database {redacted(url)}: {error.orig}", param="database") from error
    finally:
        engine.dispose()
