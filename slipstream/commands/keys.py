"""`slipstream keys`: make, list, rotate and revoke API keys. Gateways hear of a change within a second."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from slipstream.commands.options import config_option, data_option, running_settings


@click.group()
def keys() -> None:
    """Make, list, rotate and revoke API keys."""


@keys.command()
@data_option
@config_option
@click.option("--name", default="unnamed", show_default=True, help="What lists show.")
@click.option("--organization", default="demo", show_default=True, help="Who pays; made when new.")
@click.option("--project", default="default", show_default=True, help="Part of the organization; made when new.")
@click.option("--requests-per-minute", type=click.IntRange(min=1), help="Default: no limit.")
@click.option("--tokens-per-minute", type=click.IntRange(min=1), help="Default: no limit.")
@click.option("--max-concurrency", type=click.IntRange(min=1), help="Requests at once. Default: no limit.")
@click.option("--expires-days", type=click.FloatRange(min=0, min_open=True), help="Default: never.")
def create(
    config_file: Path | None,
    data: str | None,
    name: str,
    organization: str,
    project: str,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    max_concurrency: int | None,
    expires_days: float | None,
) -> None:
    """Make a key and print it: the only time it is shown."""
    from gateway.admin.audit_log import Actor, Change, record
    from gateway.limits.levels import Limits
    from gateway.tenants.api_key import create_key
    from gateway.tenants.organizations import ensure_organization, ensure_project
    from slipstream.administration import account
    from slipstream.database import connected

    settings = running_settings(config_file, data)
    limits = Limits(
        requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute, max_concurrency=max_concurrency
    )
    expires_at = None if expires_days is None else datetime.now(UTC) + timedelta(days=expires_days)

    async def run() -> str:
        async with connected(settings) as connection, connection.transaction():
            organization_id, _ = await ensure_organization(connection, organization)
            project_id, _ = await ensure_project(connection, organization_id, project)
            created = await create_key(connection, settings.pepper, project_id, name, limits, expires_at)
            change = Change(
                action="key.create",
                subject_id=str(created.key.id),
                organization_id=organization_id,
                after=created.key,
            )
            await record(connection, Actor.command(account()), change)
            return created.secret

    print(asyncio.run(run()))


@keys.command(name="list")
@data_option
@config_option
@click.option("--organization", help="Only this one's.")
def list_command(config_file: Path | None, data: str | None, organization: str | None) -> None:
    """List keys, oldest first; never their secrets."""
    from gateway.tenants.api_key import ApiKey, list_keys
    from slipstream.database import connected

    settings = running_settings(config_file, data)

    async def run() -> list[ApiKey]:
        async with connected(settings) as connection:
            return await list_keys(connection, organization)

    found = asyncio.run(run())
    now = datetime.now(UTC)
    print(f"{'id':<38}{'key':<16}{'state':<9}{'organization':<16}{'project':<16}{'name':<16}limits")
    for key in found:
        limits = (
            (key.limits.requests_per_minute, "requests/min"),
            (key.limits.tokens_per_minute, "tokens/min"),
            (key.limits.max_concurrency, "at once"),
        )
        spoken = ", ".join(f"{value:,} {unit}" for value, unit in limits if value is not None) or "none"
        tenant = f"{key.organization:<16}{key.project:<16}{key.name:<16}"
        print(f"{key.id!s:<38}{key.display:<16}{key.state(now):<9}{tenant}{spoken}")


@keys.command()
@data_option
@config_option
@click.argument("which")
def revoke(config_file: Path | None, data: str | None, which: str) -> None:
    """Revoke the key WHICH (its id, its display form or its name), for good, everywhere within a second."""
    from gateway.admin.audit_log import Actor, Change, record
    from gateway.tenants.api_key import ApiKey, revoke_key
    from slipstream.administration import account
    from slipstream.database import connected

    settings = running_settings(config_file, data)

    async def run() -> ApiKey:
        async with connected(settings) as connection, connection.transaction():
            revoked = await revoke_key(connection, which)
            organization_id = await connection.fetchval(
                "SELECT id FROM gateway.organizations WHERE name = $1", revoked.organization
            )
            change = Change(
                action="key.revoke", subject_id=str(revoked.id), organization_id=organization_id, after=revoked
            )
            await record(connection, Actor.command(account()), change)
            return revoked

    key = asyncio.run(run())
    print(f"revoked {key.display} ({key.name}, {key.organization}/{key.project})")


@keys.command()
@data_option
@config_option
@click.option(
    "--overlap-hours", type=click.FloatRange(0, 720), default=24, show_default=True, help="How long the old one opens."
)
@click.argument("key_id", type=click.UUID)
def rotate(config_file: Path | None, data: str | None, overlap_hours: float, key_id: object) -> None:
    """Give the key KEY_ID a new secret and print it; the old one opens until the end of the overlap."""
    from gateway.admin.keys import rotate_key
    from gateway.admin.secrets import Rotation
    from slipstream.administration import administer

    body = Rotation(overlap_s=round(overlap_hours * 3_600))
    print(administer(config_file, data, lambda call: rotate_key.handler(call, key_id, body)).secret)
