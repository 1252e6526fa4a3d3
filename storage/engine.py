"""Connections to PostgreSQL: one URL form for all processes, an asyncpg pool, and SQLAlchemy's form of the URL.

    postgresql://slipstream@/slipstream?host=/path/to/run      a unix socket in that folder
    postgresql://user:password@db.example.com:5432/slipstream  TCP

This module knows no tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from contracts.errors import ConfigError, SlipstreamError

FAILURES = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""asyncpg's exceptions for a database that is unreachable, restarting, full or cut off."""
DEFECTS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.SyntaxOrAccessError)
"""Errors of a statement, which a retry cannot fix."""
REFUSALS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.exceptions.ClientConfigurationError,
)
"""Errors of a server that refuses the URL's role, password or database. Waiting does not help."""
AWAY = (
    *(OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError),
    *(asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InsufficientResourcesError),
    asyncpg.TransactionRollbackError,
)
"""Errors of a server that is unreachable, restarting, full, or requests a retry."""
MAY_PASS = (*AWAY, asyncpg.PostgresSystemError, asyncpg.ReadOnlySQLTransactionError)
"""Errors that may pass by themselves, except `REFUSALS`: also those of a failing disk or a standby server."""


_HOST = r"(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?"
_HOSTS = re.compile(f"{_HOST}(,{_HOST})*")
COMMAND_TIMEOUT_S = 60.0
"""The default limit of each command of a pool, and of the wait after its cancellation."""


def checked(url: str, setting: str = "database url") -> str:
    """Return the URL if it can name a PostgreSQL database. setting: the setting that has it.

    Raises ConfigError, without the password in its text.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket that closes no IPv6 address
        parts = urlsplit("")
    if parts.scheme not in ("postgresql", "postgres") or not _HOSTS.fullmatch(parts.netloc.rpartition("@")[2]):
        raise ConfigError(
            f"{setting}: {redacted(url)!r} is not a PostgreSQL URL; write postgresql://user@host:5432/name, "
            "or postgresql://user@/name?host=/folder for a unix socket; in a password, write / as %2F, and so on",
            param=setting,
        )
    if not parts.path.strip("/"):
        raise ConfigError(f"{setting}: {redacted(url)!r} names no database; append /slipstream", param=setting)
    return url


def redacted(url: str) -> str:
    """The URL without passwords, for display; also one that is not a URL because of its password."""
    shown = re.sub(r"(://[^:]*):.*@", r"\1:***@", url, count=1, flags=re.DOTALL)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", r"\1***", shown)


def sqlalchemy_url(url: str) -> str:
    """The URL for SQLAlchemy over psycopg: Alembic and Celery tasks use it. Raises ConfigError."""
    return urlunsplit(urlsplit(checked(url))._replace(scheme="postgresql+psycopg"))


async def connect(url: str, *, timeout_s: float = 5.0, name: str = "slipstream") -> asyncpg.Connection[Any]:
    """One connection, tried once. `name` is shown in pg_stat_activity. Raises asyncpg's errors."""
    return await asyncpg.connect(checked(url), timeout=timeout_s, server_settings={"application_name": name})


def lazy_pool(
    url: str,
    *,
    size: int,
    connect_timeout_s: float,
    command_timeout_s: float = COMMAND_TIMEOUT_S,
    name: str = "slipstream",
    init: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None,
) -> asyncpg.Pool[Any]:
    """A pool that connects on first use; initialise it by awaiting it. It starts even without the database.

    command_timeout_s: limit of each command. A cancel request that reaches the server before its command is lost, and
    PostgreSQL continues to compute or to wait for a lock; asyncpg closes the connection after this time. init: prepares
    each new connection.
    """
    return asyncpg.create_pool(
        checked(url),
        min_size=0,
        max_size=size,
        timeout=connect_timeout_s,
        command_timeout=command_timeout_s,
        server_settings={"application_name": name},
        init=init,
    )


async def close(pool: asyncpg.Pool[Any] | None, timeout_s: float) -> None:
    """Close a pool gracefully, or by force after this time. None is ignored."""
    if pool is not None:
        with contextlib.suppress(*FAILURES):
            async with asyncio.timeout(timeout_s):
                await pool.close()
        pool.terminate()


class Turns:
    """Turns of organizations at connections. Each has a limited number at once. Its further requests wait for its own
    turns, and do not delay other organizations."""

    def __init__(self, most_each: int) -> None:
        self._most_each = most_each
        self._of: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    def of(self, organization_id: str) -> asyncio.Semaphore:
        """The organization's turns. Keep the reference while a turn is taken."""
        turn = self._of.get(organization_id)
        if turn is None:
            turn = self._of[organization_id] = asyncio.Semaphore(self._most_each)
        return turn


@asynccontextmanager
async def borrow(pool: asyncpg.Pool[Any]) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Borrow a connection for the block. It is closed if the block fails or is cancelled.

    Returning it to the pool would then wait for a server that may not respond. A SlipstreamError is not such a failure.
    """
    connection = await pool.acquire()
    try:
        yield connection
    except SlipstreamError:
        raise
    except BaseException:
        connection.terminate()
        raise
    finally:
        await pool.release(connection)
