"""The worker's connection for the ledger's upkeep, with SQLAlchemy Core. It uses psycopg, as a task does one thing
after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import ClauseElement

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
CONNECT_TIMEOUT_S = 10


def connect(database_url: str, *, autocommit: bool = False) -> Connection:
    """Connect for a `with` block, which commits. Raises psycopg.Error."""
    import psycopg  # the admin API imports roll-ups and runs none

    return psycopg.connect(database_url, connect_timeout=CONNECT_TIMEOUT_S, autocommit=autocommit)


def run(
    connection: Connection, statement: ClauseElement, parameters: Mapping[str, object] | None = None
) -> psycopg.Cursor[tuple[Any, ...]]:
    """Execute a statement. parameters: values of its `bindparam`s. Raises psycopg.Error."""
    text, constants = _compiled(statement)
    return connection.execute(text, {**constants, **(parameters or {})})


@cache
def _compiled(statement: ClauseElement) -> tuple[bytes, dict[str, object]]:
    from sqlalchemy.dialects.postgresql.psycopg import dialect

    compiled: Any = statement.compile(dialect=dialect())  # type: ignore[no-untyped-call]
    return compiled.string.encode(), compiled.params
