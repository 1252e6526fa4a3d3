"""One-time links to the console: access for the first owner, a new member, or a member who lost a password.

Only a hash of a link's token is stored. A link for a member replaces the previous one.
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
    """url: shown only in this response, and valid once. If the deployment does not know its own address
    (`gateway.console.public_url`), the URL is only a path."""

    url: str
    expires_at: datetime


async def create_console_link(call: AdminCall, member_id: UUID) -> ConsoleLink:
    """Create a one-time link with which a member creates a console account.

    Anyone who opens the link acts as that member, so send it only to the member. It never resets the password of an
    existing account. To do that, remove the member and add it again, or let the deployment's operator reset the
    account.
    """
    member = await MEMBERS.find(call, member_id, for_update=True)
    call.require_covers(member.role)
    if member.disabled_at is not None:
        raise Conflict("This member is disabled; enable them first.")
    if await call.connection.fetchval(HAS_ACCOUNT, member_id):
        raise Conflict(
            "This member has an account. The deployment's operator can reset it: slipstream console accounts reset "
            f"{member.email}"
        )
    return await _made(call, "invitation", member_id, member.organization_id)


async def reset_account(call: AdminCall, member_id: UUID, *, totp: bool) -> ConsoleLink:
    """Create a link by which a member sets a new password, for the deployment's operator. The old password stops
    working at once, and all sessions end. totp: whether to remove the authenticator, too."""
    member = await MEMBERS.find(call, member_id, for_update=True)
    call.principal.require(Permission.MEMBERS_WRITE, operator_only=True)
    account_id = await call.connection.fetchval(
        "SELECT id FROM gateway.console_accounts WHERE principal_id = $1 FOR UPDATE", member_id
    )
    if account_id is None:
        return await _made(call, "invitation", member_id, member.organization_id)
    await call.connection.execute("DELETE FROM gateway.console_sessions WHERE account_id = $1", account_id)
    # A stolen password may be the reason for the reset, and would open the account alone without its authenticator.
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
    """Create the link by which the first owner of a deployment signs in; None if an account exists or an earlier link
    is unused. again: replace an unused link, which then becomes invalid."""
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
