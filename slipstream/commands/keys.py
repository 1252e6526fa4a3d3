"""`slipstream keys`: make, list, rotate and revoke API keys. Gateways hear of a change within a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from contracts.errors import Conflict, NotFound
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.listing import json_option, names, show

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.tenants.keys import Key, KeyWithSecret


@click.group()
def keys() -> None:
    """Make, list, rotate and revoke API keys."""


@keys.command()
@deployment_options
@click.option("--name", default="unnamed", show_default=True, help="What lists show.")
@click.option("--organization", default="demo", show_default=True, help="Organization that pays, id or name.")
@click.option("--project", default="default", show_default=True, help="Project of the organization, id or name.")
@click.option("--create-missing", is_flag=True, help="Make the organization and the project where there is none.")
@click.option("--scope", "scopes", multiple=True, help="chat, completions or models; may be given again. Default: all.")
@click.option("--requests-per-minute", type=click.IntRange(min=1), help="Default: no limit.")
@click.option("--tokens-per-minute", type=click.IntRange(min=1), help="Default: no limit.")
@click.option("--max-concurrency", type=click.IntRange(min=1), help="Requests at once. Default: no limit.")
@click.option("--expires-days", type=click.FloatRange(min=0, min_open=True), help="Default: never.")
def create(
    deployment: Deployment,
    name: str,
    organization: str,
    project: str,
    create_missing: bool,
    scopes: tuple[str, ...],
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    max_concurrency: int | None,
    expires_days: float | None,
) -> None:
    """Make a key and print it: the only time it is shown."""
    from control.tenants.keys import NewKey, create_key
    from control.tenants.limits import ALL_TIERS, NewLimits, put_limits
    from gateway.limits.levels import Level
    from slipstream.administration import administer, converted
    from slipstream.tenants import ensure_project_named, project_named

    expires_at = None if expires_days is None else datetime.now(UTC) + timedelta(days=expires_days)
    body = converted({"name": name, "scopes": list(scopes) or None, "expires_at": expires_at}, NewKey)
    given: dict[str, object] = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "max_concurrency": max_concurrency,
    }
    limits = converted(given, NewLimits)

    async def work(call: AdminCall) -> tuple[str, list[str]]:
        notes: list[str] = []
        if create_missing:
            project_id, notes = await ensure_project_named(call, organization, project)
        else:
            try:
                project_id = await project_named(call.connection, organization, project)
            except NotFound as error:
                raise NotFound(f"{error.message}; with --create-missing a name that is new is made") from None
        made: KeyWithSecret = await create_key(call, project_id, body)
        if limits != NewLimits():
            await put_limits(call, Level.KEY, made.key.id, ALL_TIERS, limits)
        return made.secret, notes

    secret, notes = administer(deployment, work)
    for note in notes:
        click.echo(note, err=True)
    print(secret)


@keys.command(name="list")
@deployment_options
@click.option("--organization", help="Only this one's, id or name.")
@json_option
def list_command(deployment: Deployment, organization: str | None, as_json: bool) -> None:
    """List keys, oldest first; never their secrets."""
    from control.tenants.keys import overview
    from slipstream.database import connected
    from slipstream.tenants import organization_named

    settings = running_settings(*deployment)

    async def run() -> list[Any]:
        async with connected(settings) as connection:
            only = None if organization is None else await organization_named(connection, organization)
            return await overview(connection, only)

    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "id": itemgetter("id"),
        "key": itemgetter("display"),
        "state": itemgetter("state"),
        "organization": itemgetter("organization"),
        "project": itemgetter("project"),
        "name": itemgetter("name"),
        "scopes": lambda key: names(key["scopes"]),
        "limits": _limits,
    }
    show([dict(each) for each in asyncio.run(run())], columns, as_json=as_json)


def _limits(key: dict[str, Any]) -> str:
    units = {"requests_per_minute": "requests/min", "tokens_per_minute": "tokens/min", "max_concurrency": "at once"}
    return ", ".join(f"{key[name]:,} {unit}" for name, unit in units.items() if key[name] is not None) or "none"


@keys.command()
@deployment_options
@click.argument("which", metavar="KEY")
def revoke(deployment: Deployment, which: str) -> None:
    """Revoke the key WHICH (its id, its sk-slip-… as in the list, or its name), for good, everywhere within 1 s."""
    from control.tenants.keys import revoke_key
    from slipstream.administration import administer
    from slipstream.tenants import key_named

    async def work(call: AdminCall) -> Key:
        return await revoke_key(call, await key_named(call.connection, which))

    key = administer(deployment, work)
    print(f"revoked {key.display} ({key.name})")


@keys.command()
@deployment_options
@click.option(
    "--overlap-hours", type=click.FloatRange(0, 720), default=24, show_default=True, help="How long the old one opens."
)
@click.option("--end-previous", is_flag=True, help="End the secret of an earlier rotation that still opens.")
@click.argument("which", metavar="KEY")
def rotate(deployment: Deployment, overlap_hours: float, end_previous: bool, which: str) -> None:
    """Give the key WHICH (its id, its sk-slip-… as in the list, or its name) a new secret and print it; the old one
    opens until the end of the overlap."""
    from control.api.key_resource import Rotation
    from control.tenants.keys import KEYS, rotate_key
    from slipstream.administration import administer
    from slipstream.tenants import key_named

    body = Rotation(overlap_s=round(overlap_hours * 3_600), end_previous=end_previous)

    async def work(call: AdminCall) -> KeyWithSecret:
        key = await KEYS.find(call, await key_named(call.connection, which))
        try:
            return await rotate_key(call, key.id, body)
        except Conflict as error:
            if error.param != "end_previous":
                raise
            raise Conflict(
                f"The secret of {key.display} before its last rotation still opens until "
                f"{key.previous_expires_at:%Y-%m-%d %H:%M:%S} UTC. Wait, or end it now with --end-previous."
            ) from None

    rotated = administer(deployment, work)
    until = rotated.key.previous_expires_at
    if body.overlap_s and until is not None:
        note = f"the old secret works until {until:%Y-%m-%d %H:%M:%S} UTC; --overlap-hours 0 ends it at once"
    else:
        note = "the old secret has ended"
    click.echo(note, err=True)
    print(rotated.secret)
