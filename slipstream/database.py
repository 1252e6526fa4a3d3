"""A database connection for commands, with a one-line remedy if the database cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg

from contracts.desired_state import DesiredState
from contracts.errors import ConfigError, ServiceError, SlipstreamError
from slipstream.hints import command
from slipstream.settings import Settings

LOOK_TIMEOUT_S = 5.0


@contextlib.asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection to the deployment's database.

    Raises ConfigError if it cannot be reached or was not migrated, ServiceError if its disk is full, it is read-only,
    its role lacks a right, or it ends the connection.
    """
    from storage.engine import connect

    try:
        connection = await connect(settings.database_url, name="slipstream-command")
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise _unreachable(settings, str(error)) from None
    try:
        yield connection
    except asyncpg.UndefinedTableError:
        raise ConfigError(f"the database has no tables yet; run `{command('config migrate up')}`") from None
    except asyncpg.DiskFullError as error:
        raise ServiceError(f"the database's disk is full: {error}; free some space and try again") from None
    except (asyncpg.ReadOnlySQLTransactionError, asyncpg.InsufficientPrivilegeError) as error:
        raise ServiceError(f"the database refuses this command: {error}") from None
    except (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, ConnectionResetError) as error:
        raise ServiceError(f"the database ended the connection ({error}); try again") from None
    finally:
        await connection.close()


@contextlib.contextmanager
def adding_up(settings: Settings) -> Iterator[None]:
    """A block in which a command adds up totals like the worker, with psycopg.

    Raises ConfigError if the database cannot be reached, ServiceError if it refuses: a full disk, or a standby.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        reason = str(error).partition("\n")[0]
        if error.sqlstate is None:
            raise _unreachable(settings, reason) from None
        raise ServiceError(f"the totals could not be added up; the database's error: {reason}") from None


async def live_fleet(settings: Settings) -> DesiredState | None:
    """The fleet in force, including edits since the settings were read; None if no database answers."""
    from control.fleet.revision import newest

    try:
        async with connected(settings) as connection:
            found = (await newest(connection)).state
    except SlipstreamError:
        return None
    return found if found.version else None


async def ownership_warning(settings: Settings) -> str | None:
    """The warning if the application's role could alter the audit log and the ledger. Raises like `connected`."""
    from control.audit.chain import OWNED, may_alter

    async with connected(settings) as connection:
        return OWNED if await may_alter(connection) else None


async def fleet_warning(settings: Settings, instance: str) -> str | None:
    """The warning before the start of a gateway whose settings would undo edits or releases, or would not apply.

    instance: the gateway's name. Raises like `connected`.
    """
    from control.fleet.ownership import foreseen, warning_of

    state = DesiredState(version=0, models=settings.models, pools=settings.desired_pools)
    async with connected(settings) as connection:
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                return warning_of(await foreseen(connection, state, instance))
        except TimeoutError:  # a warning must not delay a start
            return "the database was busy; the gateway's log shows how these settings affect edits of the fleet"


def _unreachable(settings: Settings, reason: str) -> ConfigError:
    from storage.engine import redacted

    return ConfigError(
        f"the database {redacted(settings.database_url)} cannot be reached ({reason}); is Slipstream up on this "
        f"data folder? ({command('status')}){_elsewhere(settings)}"
    )


def _elsewhere(settings: Settings) -> str:
    """The hint if no setting names a database, so that the embedded one was tried."""
    if settings.local.database_url:
        return ""
    return "; if its processes were started one by one, name their settings with --config; --data names another folder"
