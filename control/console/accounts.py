"""Reads accounts, each with its member: permissions come from the member alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import SessionEnded, TenantDisabled
from control.api.principal import NOT_SIGNED_IN, Principal
from storage.roles import PrincipalKind, Role

MAX_OF_ONE_ADDRESS = 16
"""Organizations in which one e-mail address may have a password."""
_SELECT = """
SELECT account.id, account.created_at, account.password_hash, account.totp_secret, account.totp_last_step,
       account.totp_confirmed_at IS NOT NULL AS totp, cardinality(account.recovery_hashes) AS recovery_codes_left,
       member.id AS member_id, member.email, member.name, member.role, member.organization_id,
       organizations.name AS organization_name, organizations.operator,
       member.disabled_at IS NOT NULL OR organizations.disabled_at IS NOT NULL AS disabled
  FROM gateway.console_accounts AS account
  JOIN gateway.principals AS member ON member.id = account.principal_id
  JOIN gateway.organizations ON organizations.id = member.organization_id
"""
OF_ADDRESS = f"""{_SELECT}
 WHERE member.kind = 'member' AND lower(member.email) = lower($1) AND account.password_hash IS NOT NULL
   AND ($2::uuid IS NULL OR member.organization_id = $2)
 ORDER BY account.created_at, account.id LIMIT {MAX_OF_ONE_ADDRESS}
"""
BY_ID = f"{_SELECT} WHERE account.id = $1"
OF_SESSION = f"""{_SELECT}
  JOIN gateway.console_sessions AS session ON session.account_id = account.id
 WHERE session.token_hash = $1 AND session.expires_at > now() AND session.last_seen_at > now() - $2::interval
"""
LOCK = "SELECT FROM gateway.console_accounts WHERE id = $1 FOR UPDATE"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One account and its member."""

    id: UUID
    created_at: datetime
    password_hash: str | None
    totp_secret: bytes | None
    """The sealed secret."""
    totp_last_step: int | None
    totp: bool
    """Whether the authenticator is in force."""
    recovery_codes_left: int
    member_id: UUID
    email: str
    name: str
    role: Role
    organization_id: UUID
    organization_name: str
    operator: bool
    disabled: bool

    def principal(self, session_id: UUID | None = None) -> Principal:
        """The member as an actor."""
        return Principal(
            id=self.member_id,
            key_id=None,
            session_id=session_id,
            organization_id=self.organization_id,
            kind=PrincipalKind.MEMBER,
            name=self.name,
            email=self.email,
            role=self.role,
            operator=self.operator,
        )

    def require_enabled(self) -> None:
        """Raise TenantDisabled if the member or the organization is disabled."""
        if self.disabled:
            raise TenantDisabled("This member or the organization is disabled.")


async def of_address(connection: asyncpg.Connection[Any], email: str, organization_id: UUID | None) -> list[Account]:
    """All accounts with a password whose member has this address, ignoring case, the oldest first."""
    return [_account(row) for row in await connection.fetch(OF_ADDRESS, email, organization_id)]


async def by_id(connection: asyncpg.Connection[Any], account_id: UUID, *, lock: bool = False) -> Account:
    """The account with this id. lock: until the end of the transaction. Raises SessionEnded if it was deleted."""
    if lock:
        await connection.execute(LOCK, account_id)
    row = await connection.fetchrow(BY_ID, account_id)
    if row is None:
        raise SessionEnded(NOT_SIGNED_IN)
    return _account(row)


async def of_session(connection: asyncpg.Connection[Any], token_hash: bytes, idle: timedelta) -> Account:
    """The session's account. Raises SessionEnded, or TenantDisabled."""
    row = await connection.fetchrow(OF_SESSION, token_hash, idle)
    if row is None:
        raise SessionEnded(NOT_SIGNED_IN)
    account = _account(row)
    account.require_enabled()
    return account


def _account(row: asyncpg.Record) -> Account:
    return msgspec.convert(dict(row), Account)
