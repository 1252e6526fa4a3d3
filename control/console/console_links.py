"""One-time links to the console: how the first owner, a new member, or somebody who lost a password comes in.

Only a hash of a link's token is stored. A link for a member takes the place of the one before.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from uuid import UUID

import msgspec

from contracts.errors import Conflict
from control.api.call import AdminCall
from control.sessions.token import link_hash
from control.tenants.members import MEMBERS
from storage.roles import Permission

TOKEN_BYTES = 32
PAGE = "/console/#/welcome?token="
DROP = "DELETE FROM gateway.console_links WHERE principal_id IS NOT DISTINCT FROM $1"
INSERT = """
INSERT INTO gateway.console_links (hash, kind, principal_id, expires_at)
VALUES ($1, $2, $3, now() + $4 * interval '1 second') RETURNING expires_at
"""
HAS_ACCOUNT = "SELECT EXISTS (SELECT FROM gateway.console_accounts WHERE principal_id = $1)"
SOMEBODY_HAS = "SELECT EXISTS (SELECT FROM gateway.console_accounts)"
WAITS = "SELECT EXISTS (SELECT FROM gateway.console_links WHERE kind = 'first' AND expires_at > now())"
OPERATING = "SELECT id FROM gateway.organizations WHERE operator"


class ConsoleLink(msgspec.Struct, frozen=True, kw_only=True):
    """url: shown now and never again; where this deployment does not know its own address
    (`gateway.console.public_url`), it begins with the path. It opens once."""

    url: str
    expires_at: datetime


async def create_console_link(call: AdminCall, member_id: UUID) -> ConsoleLink:
    """Make the one-time link by which a member, who has no account of the console yet, makes one.

    Who opens it acts as that member: send it to nobody else. A member with an account is not given another password
    this way, by nobody: remove the member and add them again, or have whoever runs the deployment reset it.
    """
    member = await MEMBERS.find(call, member_id, for_update=True)
    call.require_covers(member.role)
    if member.disabled_at is not None:
        raise Conflict("This member is disabled; enable them first.")
    if await call.connection.fetchval(HAS_ACCOUNT, member_id):
        raise Conflict(
            "This member has an account. Whoever runs the deployment resets it: slipstream console accounts reset "
            f"{member.email}"
        )
    return await _made(call, "invitation", member_id, member.organization_id)


async def reset_account(call: AdminCall, member_id: UUID, *, totp: bool) -> ConsoleLink:
    """A link by which a member gives the account another password, for whoever runs the deployment. The one so far
    opens nothing from now on, and all sessions end. totp: the authenticator is forgotten at once too."""
    member = await MEMBERS.find(call, member_id, for_update=True)
    call.principal.require(Permission.MEMBERS_WRITE, operator_only=True)
    account_id = await call.connection.fetchval(
        "SELECT id FROM gateway.console_accounts WHERE principal_id = $1 FOR UPDATE", member_id
    )
    if account_id is None:
        return await _made(call, "invitation", member_id, member.organization_id)
    await call.connection.execute("DELETE FROM gateway.console_sessions WHERE account_id = $1", account_id)
    # Who knows it may be why the account is reset, and without its authenticator it would open alone.
    await call.connection.execute("UPDATE gateway.console_accounts SET password_hash = NULL WHERE id = $1", account_id)
    if totp:
        await call.connection.execute(
            "UPDATE gateway.console_accounts SET totp_secret = NULL, totp_confirmed_at = NULL, totp_last_step = NULL,"
            " recovery_hashes = '{}' WHERE id = $1",
            account_id,
        )
    call.audit(
        "console_account.reset",
        account_id,
        organization_id=member.organization_id,
        before={"account_id": account_id, "member_id": member_id, "email": member.email},
        after={"password": "forgotten", "totp": "forgotten" if totp else "kept", "sessions": "ended"},
    )
    return await _made(call, "reset", member_id, member.organization_id)


async def first_link(call: AdminCall, *, again: bool) -> ConsoleLink | None:
    """The link by which the first owner of a deployment comes in; None when somebody has an account. again: also while
    an earlier one waits to be used, which then opens nothing any more."""
    if await call.connection.fetchval(SOMEBODY_HAS):
        return None
    if not again and await call.connection.fetchval(WAITS):
        return None
    return await _made(call, "first", None, await call.connection.fetchval(OPERATING))


async def _made(call: AdminCall, kind: str, member_id: UUID | None, organization_id: UUID | None) -> ConsoleLink:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    await call.connection.execute(DROP, member_id)
    expires_at = await call.connection.fetchval(
        INSERT, link_hash(call.pepper, token), kind, member_id, call.console.link_lifetime_s
    )
    call.audit(
        "console_link.create",
        member_id or "first",
        organization_id=organization_id,
        after={"kind": kind, "member_id": member_id, "expires_at": expires_at},
    )
    return ConsoleLink(url=f"{call.console.public_url}{PAGE}{token}", expires_at=expires_at)
