"""Runs the admin API's handlers for commands: the same rules and the same audit rows, without HTTP and without a key.

A person who can read the deployment's settings and pepper has all rights; the log names their account on this machine
and the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from slipstream.commands.options import Deployment, running_settings
from slipstream.database import connected
from slipstream.settings import Settings

if TYPE_CHECKING:
    from control.api.call import AdminCall

ResultT = TypeVar("ResultT")
BodyT = TypeVar("BodyT")


def administer(deployment: Deployment, work: Callable[[AdminCall], Awaitable[ResultT]]) -> ResultT:
    """Run `work` with an AdminCall, in one transaction with its audit rows, for the command that is running."""
    command = _command(click.get_current_context())

    async def run() -> ResultT:
        async with administration(running_settings(*deployment), command) as call:
            return await work(call)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def administration(settings: Settings, command: str) -> AsyncIterator[AdminCall]:
    """An AdminCall with all permissions; commits at the end. command: its name in the audit log.

    Raises ConfigError if the database is unreachable, Conflict if a name is taken.
    """
    from control.api.api import prepare
    from control.api.call import AdminCall, NoCounterReader
    from control.api.principal import NO_KEY, Principal
    from control.api.transaction import recorded
    from control.eval_runs.startable import ConfiguredSlices
    from control.fleet.revision import newest
    from storage.roles import PrincipalKind, Role

    async with connected(settings) as connection:
        await prepare(connection)
        principal = Principal(
            id=NO_KEY,
            key_id=NO_KEY,
            organization_id=NO_KEY,
            kind=PrincipalKind.SERVICE_ACCOUNT,
            name=account(),
            email=None,
            role=Role.OWNER,
            operator=True,
        )
        fleet = (await newest(connection)).state
        config = settings.gateway.admin
        slices = ConfiguredSlices(settings.evals)
        call = AdminCall(
            connection,
            principal,
            command,
            settings.pepper,
            fleet,
            config,
            NoCounterReader(),
            slices,
            console=settings.gateway.console,
        )
        async with recorded(call, principal.actor(command)):
            yield call


def converted(values: dict[str, object], kind: type[BodyT]) -> BodyT:
    """A command's options as the body of a request. Raises InvalidField, like the API."""
    from gateway.wire.decode import validation_error

    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise validation_error(str(error), kind) from None


def account() -> str:
    """The account of this shell, as the audit log records it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the uid has no name, as in a container
        return f"uid {os.getuid()}"


def _command(context: click.Context) -> str:
    """The command such as `slipstream keys create`, however the program was started."""
    names: list[str] = []
    inner: click.Context | None = context
    while inner is not None and inner.parent is not None:
        names.append(str(inner.info_name))
        inner = inner.parent
    return " ".join(("slipstream", *reversed(names)))
