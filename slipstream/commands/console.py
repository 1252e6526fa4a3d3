"""`slipstream console`: opens the console and creates its accounts, from a shell on the deployment's machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from slipstream.command_table import Group
from slipstream.commands.members import ROLES
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.listing import STATES
from slipstream.operated import ORGANIZATION, listed

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.console.console_links import ConsoleLink

ACCOUNTS = """
SELECT member.id, member.email, member.role, organizations.name AS organization,
       member.disabled_at IS NOT NULL OR organizations.disabled_at IS NOT NULL AS disabled,
       account.password_hash IS NOT NULL AS password, account.totp_confirmed_at IS NOT NULL AS totp,
       account.oidc_issuer IS NOT NULL AS oidc,
       (SELECT max(last_seen_at) FROM gateway.console_sessions WHERE account_id = account.id) AS last_seen_at
  FROM gateway.console_accounts AS account
  JOIN gateway.principals AS member ON member.id = account.principal_id
  JOIN gateway.organizations ON organizations.id = member.organization_id
 WHERE $1::uuid IS NULL OR organizations.id = $1
 ORDER BY account.created_at DESC, account.id LIMIT 1000
"""
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
OF_OPERATOR = "Id or name. Default: the operating organization."


def has_screen(platform: str, environment: Mapping[str, str]) -> bool:
    """Whether a browser can open: without a screen, `xdg-open` reports that each browser is missing.

    platform: like `sys.platform`.
    """
    return platform in ("darwin", "win32") or any(environment.get(name) for name in SCREENS)


@click.group(cls=Group)
def console() -> None:
    """Open the console; manage accounts and keys; read the audit log."""


@console.command(name="open")
@deployment_options
@click.option(
    "--browser/--no-browser", default=True, show_default=True, help="Open a browser, or only print the address."
)
def open_command(deployment: Deployment, browser: bool) -> None:
    """Open the console. If there is no account yet, a one-time link creates the first owner's account."""
    from control.console.console_links import first_link
    from slipstream.administration import administer
    from slipstream.tenants import ensure_operating_organization

    async def work(call: AdminCall) -> ConsoleLink | None:
        await ensure_operating_organization(call)
        return await first_link(call, again=True)

    link = administer(deployment, work)
    address = _address(deployment, "/console/" if link is None else link.url)
    print(address)
    if browser and has_screen(sys.platform, os.environ):
        click.launch(address)


@console.command()
@deployment_options
@click.option("--organization", help=OF_OPERATOR)
@click.option("--role", type=click.Choice(ROLES), default="owner", show_default=True, help="Role of a new member.")
@click.option("--name", help="Name of a new member. Default: the e-mail address.")
@click.argument("email", required=False)
def link(deployment: Deployment, organization: str | None, role: str, name: str | None, email: str | None) -> None:
    """Print a one-time link with which EMAIL creates an account. A new EMAIL is added as a member. Without EMAIL, and
    while there is no account, print the link of the first start again."""
    from control.console.console_links import create_console_link, first_link
    from control.tenants.members import NewMember, create_member
    from slipstream.administration import administer, converted
    from slipstream.tenants import ensure_operating_organization, organization_named

    async def work(call: AdminCall) -> ConsoleLink | None:
        if organization is None:
            found = await ensure_operating_organization(call)
        else:
            found = await organization_named(call.connection, organization)
        if email is None:
            return await first_link(call, again=True)
        member_id = await call.connection.fetchval(
            "SELECT id FROM gateway.principals WHERE organization_id = $1 AND lower(email) = lower($2)", found, email
        )
        if member_id is None:
            body = converted({"email": email, "name": name or email, "role": role}, NewMember)
            member_id = (await create_member(call, found, body)).id
        return await create_console_link(call, member_id)

    made = administer(deployment, work)
    if made is None:
        raise click.UsageError("An account exists already: give the e-mail address of the person whom the link is for.")
    if email is not None:
        click.echo(f"for {email} in {organization or 'the operating organization'}", err=True)
    _show(deployment, made)


@console.group()
def accounts() -> None:
    """List and repair accounts of the console."""


def _ways(account: dict[str, Any]) -> str:
    ways = {"password": "password", "totp": "authenticator", "oidc": "provider"}
    return ", ".join(way for name, way in ways.items() if account[name])


async def _accounts(call: AdminCall, options: dict[str, Any]) -> list[dict[str, Any]]:
    found = None if options["organization"] is None else await ORGANIZATION.find(call, options)
    return [dict(each) for each in await call.connection.fetch(ACCOUNTS, found)]


@listed(
    accounts,
    _accounts,
    {
        "e-mail": itemgetter("email"),
        "organization": itemgetter("organization"),
        "role": itemgetter("role"),
        "signs in by": _ways,
        "state": lambda each: STATES[not each["disabled"]],
        "last seen": lambda each: f"{each['last_seen_at']:%Y-%m-%dT%H:%M%z}" if each["last_seen_at"] else "-",
    },
)
@click.option("--organization", help="Organization, by id or name. Default: all organizations.")
def list_command() -> None:
    """List accounts, newest first."""


@accounts.command()
@deployment_options
@click.option(
    "--organization",
    help="Organization, by id or name. Default: the organization of the only account with this address.",
)
@click.option("--totp", is_flag=True, help="Also remove the authenticator, if it was lost.")
@click.argument("which")
def reset(deployment: Deployment, organization: str | None, totp: bool, which: str) -> None:
    """End all sessions of the member WHICH (id or e-mail address), and print a one-time link for a new password."""
    from control.console.console_links import reset_account
    from slipstream.administration import administer
    from slipstream.tenants import account_named, member_named, organization_named

    async def work(call: AdminCall) -> ConsoleLink:
        if organization is None:
            return await reset_account(call, await account_named(call.connection, which), totp=totp)
        found = await organization_named(call.connection, organization)
        return await reset_account(call, await member_named(call.connection, found, which), totp=totp)

    _show(deployment, administer(deployment, work))


def _show(deployment: Deployment, made: ConsoleLink) -> None:
    click.echo(f"valid once, until {made.expires_at.isoformat(timespec='minutes')}", err=True)
    print(_address(deployment, made.url))


def _address(deployment: Deployment, url: str) -> str:
    """The full URL. url: with or without the deployment's address."""
    from slipstream.processes import admin_url

    settings = running_settings(*deployment)
    base = settings.gateway.console.public_url or admin_url(settings)
    return url if "://" in url else f"{base}{url}"
