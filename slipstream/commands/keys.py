"""`slipstream keys`: creates, lists, rotates and revokes API keys. Gateways apply a change within a second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from contracts.errors import Conflict, NotFound
from slipstream.listing import names
from slipstream.operated import ORGANIZATION, AdminOperation, Noted, PathValue, listed, operated

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.tenants.keys import Key, KeyWithSecret

LIMIT_UNITS = {"requests_per_minute": "requests/min", "tokens_per_minute": "tokens/min", "max_concurrency": "at once"}
"""Limits that a new key can have, with their units."""


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


async def _create(call: AdminCall, options: dict[str, Any]) -> Noted:
    from control.tenants.keys import NewKey, create_key
    from control.tenants.limits import ALL_TIERS, NewLimits, put_limits
    from gateway.limits.levels import Level
    from slipstream.administration import converted
    from slipstream.tenants import ensure_project_named, project_named

    organization, project, days = options["organization"], options["project"], options["expires_days"]
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    scopes = list(options["scopes"]) or None
    body = converted({"name": options["name"], "scopes": scopes, "expires_at": expires_at}, NewKey)
    limits = converted({name: options[name] for name in LIMIT_UNITS}, NewLimits)
    notes: list[str] = []
    if options["create_missing"]:
        project_id, notes = await ensure_project_named(call, organization, project)
    else:
        try:
            project_id = await project_named(call.connection, organization, project)
        except NotFound as error:
            raise NotFound(f"{error.message}; --create-missing creates them") from None
    made = await create_key(call, project_id, body)
    if limits:
        await put_limits(call, Level.KEY, made.key.id, ALL_TIERS, limits)
    return Noted(made, notes)


@operated(keys, _create)
@click.option("--name", default="unnamed", show_default=True, help="Name of the key in lists.")
@click.option("--organization", default="demo", show_default=True, help="Organization that pays: id or name.")
@click.option("--project", default="default", show_default=True, help="Project of the organization: id or name.")
@click.option("--create-missing", is_flag=True, help="Create the organization and the project if they are missing.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    help="Scope of the key: chat, completions, embeddings or models. Repeat for several. Default: all.",
)
@click.option("--requests-per-minute", type=click.IntRange(min=1), help="Default: no limit.")
@click.option("--tokens-per-minute", type=click.IntRange(min=1), help="Default: no limit.")
@click.option(
    "--max-concurrency", type=click.IntRange(min=1), help="Maximum number of concurrent requests. Default: no limit."
)
@click.option(
    "--expires-days", type=click.FloatRange(min=0, min_open=True), help="Days until the key expires. Default: never."
)
def create(made: KeyWithSecret) -> str:
    """Create a key and print it. It is shown only once."""
    return made.secret


async def _overview(call: AdminCall, options: dict[str, Any]) -> list[dict[str, Any]]:
    from control.tenants.keys import overview

    only = None if options["organization"] is None else await ORGANIZATION.find(call, options)
    return [dict(each) for each in await overview(call.connection, only)]


def _limits(key: dict[str, Any]) -> str:
    return ", ".join(f"{key[name]:,} {unit}" for name, unit in LIMIT_UNITS.items() if key[name] is not None) or "none"


@listed(
    keys,
    _overview,
    {
        "id": itemgetter("id"),
        "key": itemgetter("display"),
        "state": itemgetter("state"),
        "organization": itemgetter("organization"),
        "project": itemgetter("project"),
        "name": itemgetter("name"),
        "scopes": lambda key: names(key["scopes"]),
        "limits": _limits,
    },
)
@click.option("--organization", help="Only keys of this organization (id or name).")
def list_command() -> None:
    """List keys, without their secrets, oldest first."""


@operated(keys, AdminOperation("tenants.keys.revoke_key", PathValue("key_named", ("which",))))
@click.argument("which", metavar="KEY")
def revoke(key: Key) -> str:
    """Revoke the key WHICH (its id, its sk-slip-… from the list, or its name) permanently. All gateways refuse it
    within 1 s."""
    return f"revoked {key.display} ({key.name})"


async def _rotate(call: AdminCall, options: dict[str, Any]) -> Noted:
    from control.api.key_resource import Rotation
    from control.tenants.keys import KEYS, rotate_key
    from slipstream.tenants import key_named

    body = Rotation(overlap_s=round(options["overlap_hours"] * 3_600), end_previous=options["end_previous"])
    key = await KEYS.find(call, await key_named(call.connection, options["which"]))
    try:
        rotated = await rotate_key(call, key.id, body)
    except Conflict as error:
        if error.param != "end_previous":
            raise
        raise Conflict(
            f"The secret of {key.display} before its last rotation is still valid until "
            f"{key.previous_expires_at:%Y-%m-%d %H:%M:%S} UTC. Wait, or end it now with --end-previous."
        ) from None
    until = rotated.key.previous_expires_at
    if body.overlap_s and until is not None:
        note = f"the old secret works until {until:%Y-%m-%d %H:%M:%S} UTC; --overlap-hours 0 ends it at once"
    else:
        note = "the old secret is no longer valid"
    return Noted(rotated, [note])


@operated(keys, _rotate)
@click.option(
    "--overlap-hours",
    type=click.FloatRange(0, 720),
    default=24,
    show_default=True,
    help="Hours for which the old secret stays valid.",
)
@click.option(
    "--end-previous", is_flag=True, help="Also revoke the old secret of an earlier rotation, if it is still valid."
)
@click.argument("which", metavar="KEY")
def rotate(rotated: KeyWithSecret) -> str:
    """Give the key WHICH (its id, its sk-slip-… from the list, or its name) a new secret and print it. The old secret
    works until the end of the overlap."""
    return rotated.secret
