"""Previews and uses one-time links."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import InvalidLink, MissingField
from control.api.call import AdminCall
from control.api.fair_queue import QueueKey
from control.api.principal import NO_KEY, Principal
from control.api.transaction import recorded
from control.console import passwords
from control.console.accounts import Account, by_id
from control.console.console import ConsoleCall
from control.console.hash_queue import RETURNING
from control.console.schema import ConsoleSession, LinkKind, LinkPreview, LinkPreviewed, SignInMethod, Welcome
from control.console.sessions import begin, end_all, show
from control.sessions.token import link_hash
from control.tenants.members import NewMember, create_member
from storage.actor_kind import ActorKind
from storage.audit_log import Actor
from storage.roles import PrincipalKind, Role

NO_LINK = "This link was used, has expired, or is invalid; request another."
LINK = """
SELECT link.kind, principal_id, link.expires_at, coalesce(member.email, '') AS email, coalesce(member.name, '') AS name,
       organizations.name AS organization, organizations.id AS organization_id
  FROM gateway.console_links AS link
  LEFT JOIN gateway.principals AS member ON member.id = principal_id
  JOIN gateway.organizations
    ON CASE WHEN principal_id IS NULL THEN organizations.operator ELSE organizations.id = member.organization_id END
 WHERE hash = $1 AND link.expires_at > now() AND member.disabled_at IS NULL AND organizations.disabled_at IS NULL
   AND (link.kind = 'reset' OR NOT EXISTS (
        SELECT FROM gateway.console_accounts AS account WHERE account.principal_id = link.principal_id))
"""
USE = "DELETE FROM gateway.console_links WHERE hash = $1 RETURNING id"
ONE_FIRST = "SELECT pg_advisory_xact_lock(hashtext('slipstream console first'))"
SOMEBODY_HAS = "SELECT EXISTS (SELECT FROM gateway.console_accounts)"
MEMBER = """
SELECT id FROM gateway.principals WHERE organization_id = $1 AND kind = 'member' AND lower(email) = lower($2)
"""
PUT = """
INSERT INTO gateway.console_accounts AS account (principal_id, password_hash) VALUES ($1, $2)
    ON CONFLICT (principal_id) DO UPDATE SET password_hash = excluded.password_hash WHERE $3 RETURNING id
"""
"""Only a reset gives a password to an account that exists: the member may have signed in by a provider since the
invitation, whose link others know."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A valid link. principal_id: None for a new person; email and name are then empty."""

    kind: LinkKind
    principal_id: UUID | None
    expires_at: datetime
    email: str
    name: str
    organization: str
    organization_id: UUID


async def preview_link(call: ConsoleCall, body: LinkPreviewed) -> LinkPreview:
    """Preview the purpose and the account of a one-time link, without using it."""
    call.visit.require_own_page()
    link = await _link(call, body.token)
    return LinkPreview(
        kind=link.kind,
        email=link.email or None,
        name=link.name or None,
        organization=link.organization,
        expires_at=link.expires_at,
    )


async def welcome(call: ConsoleCall, body: Welcome) -> ConsoleSession:
    """Use a one-time link: give the account a password, and sign in. The link becomes invalid.

    If the account's authenticator is in force, the link does not sign in: sign in by the new password and a code. A
    link of the first start also creates the owner of the operating organization, with the given `email` and `name`.
    """
    call.visit.require_own_page()
    link = await _link(call, body.token)
    email, name = link.email or body.email, link.name or body.name
    if email is None:
        raise MissingField("Object missing required field `email`: this link has no address of its own.", param="email")
    passwords.check(body.password, "password", email, name or "")
    password_hash = await call.console.passwords.hash(body.password, QueueKey(RETURNING, body.token))

    async def use(connection: asyncpg.Connection[Any]) -> Account:
        admin = call.console.admin.call(connection, _link_itself(link, email), call.request_id)
        async with recorded(admin, _actor(link, email, call.request_id)):
            if await connection.fetchval(USE, link_hash(call.console.pepper, body.token)) is None:
                raise InvalidLink(NO_LINK)
            member_id = link.principal_id or await _first_owner(admin, link, email, name or email)
            account_id = await connection.fetchval(PUT, member_id, password_hash, link.kind is LinkKind.RESET)
            if account_id is None:
                raise InvalidLink(NO_LINK)
            account = await by_id(connection, account_id, lock=True)
            admin.audit(
                "console_account.reset" if link.kind is LinkKind.RESET else "console_account.create",
                account_id,
                organization_id=account.organization_id,
                after={"account_id": account_id, "member_id": member_id, "email": email},
            )
            if link.kind is LinkKind.RESET:
                await end_all(connection, admin, account, None)
            if not account.totp:
                await begin(call, connection, admin, account, SignInMethod.LINK)
        return account

    account = await call.work(use)
    if account.totp:  # a link replaces the password, not the authenticator
        call.forget()
        return await show(call, None)
    return await show(call, account)


async def _link(call: ConsoleCall, token: str) -> Link:
    """The link with this token. Raises InvalidLink."""
    hashed = link_hash(call.console.pepper, token)

    async def find(connection: asyncpg.Connection[Any]) -> Link | None:
        row = await connection.fetchrow(LINK, hashed)
        return None if row is None else msgspec.convert(dict(row), Link)

    link = await call.work(find)
    if link is None:
        raise InvalidLink(NO_LINK)
    return link


async def _first_owner(admin: AdminCall, link: Link, email: str, name: str) -> UUID:
    """The member of the operating organization with this address, created if missing. Raises InvalidLink if an account
    exists by now."""
    await admin.connection.execute(ONE_FIRST)
    if await admin.connection.fetchval(SOMEBODY_HAS):
        raise InvalidLink(NO_LINK)
    known: UUID | None = await admin.connection.fetchval(MEMBER, link.organization_id, email)
    if known is not None:
        return known
    made = await create_member(admin, link.organization_id, NewMember(email=email, name=name, role=Role.OWNER))
    return made.id


def _link_itself(link: Link, email: str) -> Principal:
    """The actor until the account exists: the link's holder."""
    return Principal(
        id=link.principal_id or NO_KEY,
        key_id=None,
        organization_id=link.organization_id,
        kind=PrincipalKind.MEMBER,
        name=email,
        email=email,
        role=Role.OWNER,
        operator=link.principal_id is None,
    )


def _actor(link: Link, email: str, request_id: str) -> Actor:
    if link.principal_id is None:
        return Actor(kind=ActorKind.SYSTEM, name=f"link of the first start, used by {email}", request_id=request_id)
    return Actor(kind=ActorKind.MEMBER, name=email, id=link.principal_id, request_id=request_id)
