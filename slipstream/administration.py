"""Runs the admin API's handlers for commands: the same rules and the same audit rows, without HTTP and without a key.

Whoever may read the deployment's settings and pepper may do everything; the log names their account on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from contracts.desired_state import Model
from contracts.errors import NotFound
from slipstream.commands.options import running_settings
from slipstream.database import connected
from slipstream.settings import Settings

ResultT = TypeVar("ResultT")
BodyT = TypeVar("BodyT")
NOBODY = UUID(int=0)


class _Models(msgspec.Struct):
    models: tuple[Model, ...]


def administer(config_file: Path | None, data: str | None, work: Callable[[Any], Awaitable[ResultT]]) -> ResultT:
    """Run `work` with an AdminCall, in one transaction with its audit rows."""

    async def run() -> ResultT:
        async with administration(running_settings(config_file, data)) as call:
            return await work(call)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def administration(settings: Settings) -> AsyncIterator[Any]:
    """An AdminCall that may do everything; commits at the end."""
    from gateway.admin.api import prepare
    from gateway.admin.audit_log import Actor, record
    from gateway.admin.call import AdminCall, NoCounters
    from gateway.admin.principal import Principal
    from gateway.tenants.roles import PrincipalKind, Role

    async with connected(settings) as connection:
        await prepare(connection)
        principal = Principal(
            id=NOBODY,
            key_id=NOBODY,
            organization_id=NOBODY,
            kind=PrincipalKind.SERVICE_ACCOUNT,
            name=account(),
            email=None,
            role=Role.OWNER,
            operator=True,
        )
        async with connection.transaction():
            models = _Models(await _models(connection))
            call = AdminCall(
                connection, principal, "command", settings.pepper, models, settings.gateway.admin.webhooks, NoCounters()
            )
            yield call
            for change in call.changes:
                await record(connection, Actor.command(principal.name), change)


async def organization_named(connection: asyncpg.Connection[Any], which: str) -> UUID:
    """By id or name. Raises NotFound."""
    found: UUID | None = await connection.fetchval(
        "SELECT id FROM gateway.organizations WHERE id::text = lower($1) OR name = $1", which
    )
    if found is None:
        raise NotFound(f"organization {which!r}: none has this id or name; `slipstream organizations list` shows them")
    return found


async def project_named(connection: asyncpg.Connection[Any], organization: str, which: str) -> UUID:
    """By id, or by name in the organization. Raises NotFound."""
    organization_id = await organization_named(connection, organization)
    found: UUID | None = await connection.fetchval(
        "SELECT id FROM gateway.projects WHERE organization_id = $1 AND (id::text = lower($2) OR name = $2)",
        organization_id,
        which,
    )
    if found is None:
        raise NotFound(f"project {which!r}: {organization} has none with this id or name")
    return found


def converted(values: dict[str, object], kind: type[BodyT]) -> BodyT:
    """A command's options as the body of a request. Raises InvalidField, as the API would."""
    from gateway.openai.decode import validation_error

    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise validation_error(str(error), kind) from None


async def _models(connection: asyncpg.Connection[Any]) -> tuple[Model, ...]:
    from gateway.desired import document
    from gateway.desired.store import NEWEST

    row = await connection.fetchrow(NEWEST.replace("document FROM", "document::text FROM"), 0)
    return document.decode(row[0], row[1]).models if row is not None else ()


def account() -> str:
    """Whose shell this is, as the audit log names it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this number in a container
        return f"uid {os.getuid()}"
