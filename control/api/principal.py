"""The holder of an admin key or of a console session. It is looked up for every request when the head has arrived, so
that a revocation, the end of a session, a new role or a disabled tenant takes effect for every later request, on every
instance.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import (
    AuthError,
    ExpiredKey,
    InvalidKey,
    PermissionDenied,
    RevokedKey,
    SessionEnded,
    TenantDisabled,
)
from gateway.auth import keys
from storage.actor_kind import ActorKind
from storage.audit_log import Actor
from storage.roles import PERMISSIONS, Permission, PrincipalKind, Role

LAST_USED_EVERY = timedelta(minutes=1)
UNKNOWN_KEY = keys.UNKNOWN
NO_KEY = UUID(int=0)
"""The key id of a person with a shell on the deployment's machine, who has all rights anyway."""

LOOKUP = """
SELECT admin_keys.id AS key_id, principals.id, organization_id, kind, principals.name, email, role, operator,
       revoked_at IS NOT NULL AS revoked,
       principals.disabled_at IS NOT NULL OR organizations.disabled_at IS NOT NULL AS disabled,
       $1::bytea AS secret_hash,
       CASE WHEN hash = $1 THEN expires_at ELSE least(expires_at, previous_expires_at) END <= now() AS expired
  FROM gateway.admin_keys
  JOIN gateway.principals ON principals.id = principal_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE hash = $1 OR previous_hash = $1
"""
STANDING = """
SELECT role, operator,
       revoked_at IS NULL AND principals.disabled_at IS NULL AND organizations.disabled_at IS NULL
       AND (hash = $2 OR previous_hash = $2 AND previous_expires_at > now()) AS valid
  FROM gateway.admin_keys
  JOIN gateway.principals ON principals.id = principal_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE admin_keys.id = $1
"""
USED = """
UPDATE gateway.admin_keys SET last_used_at = now()
 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - $2::interval)
"""
SESSION = """
SELECT console_sessions.id AS session_id, NULL::uuid AS key_id, principals.id, organization_id, kind, principals.name,
       email, role, operator,
       principals.disabled_at IS NOT NULL OR organizations.disabled_at IS NOT NULL AS disabled
  FROM gateway.console_sessions
  JOIN gateway.console_accounts ON console_accounts.id = account_id
  JOIN gateway.principals ON principals.id = principal_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE token_hash = $1 AND expires_at > now() AND last_seen_at > now() - $2::interval
"""
SESSION_STANDING = """
SELECT role, operator, principals.disabled_at IS NULL AND organizations.disabled_at IS NULL AS valid
  FROM gateway.console_sessions
  JOIN gateway.console_accounts ON console_accounts.id = account_id
  JOIN gateway.principals ON principals.id = principal_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE console_sessions.id = $1
"""
SEEN = """
UPDATE gateway.console_sessions SET last_seen_at = now() WHERE id = $1 AND last_seen_at < now() - $2::interval
"""
SEEN_SHARE = 20
"""A session's use is recorded once a minute, or this many times within its idle time if that is more often."""
NOT_SIGNED_IN = "You are not signed in, or the session has ended; sign in again."


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A member or service account that sends a request, with an admin key or, for a member, with a console session."""

    id: UUID
    key_id: UUID | None
    secret_hash: bytes | None = None
    """The hash of the secret that the request used: after a rotation, the old secret stays valid for some time."""
    session_id: UUID | None = None
    organization_id: UUID
    kind: PrincipalKind
    name: str
    email: str | None
    role: Role
    operator: bool
    """Whether it belongs to the operating organization. Its role then applies in every organization."""

    @property
    def permissions(self) -> frozenset[Permission]:
        """Permissions of the role."""
        return PERMISSIONS[self.role]

    def speaks_for(self, organization_id: UUID) -> bool:
        """Whether it belongs to that organization, and is not only permitted to act in it. A shell on the deployment's
        machine belongs to every organization."""
        return self.organization_id == organization_id or self.key_id == NO_KEY

    def require(self, permission: Permission | None, *, operator_only: bool) -> None:
        """Raises PermissionDenied without the permission. operator_only: the action concerns several organizations."""
        if permission is not None and permission not in self.permissions:
            raise PermissionDenied(f"The role '{self.role.value}' lacks the permission '{permission.value}'.")
        if operator_only and not self.operator:
            raise PermissionDenied("Only members of the operating organization may do this.")

    def actor(self, request_id: str) -> Actor:
        """The actor that the audit log records; for a shell on the deployment's machine, it is the command."""
        if self.key_id == NO_KEY:
            return Actor.command(self.name, request_id)
        return Actor(
            kind=ActorKind(self.kind.value),
            name=self.email or self.name,
            id=self.id,
            key_id=self.key_id,
            request_id=request_id,
        )


async def confirm(connection: asyncpg.Connection[Any], principal: Principal) -> Principal:
    """The principal of a request with its current role. Raises RevokedKey or SessionEnded if its key or session is no
    longer valid."""
    if principal.session_id is not None:
        row = await connection.fetchrow(SESSION_STANDING, principal.session_id)
    else:
        row = await connection.fetchrow(STANDING, principal.key_id, principal.secret_hash)
    if row is None or not row["valid"]:
        if principal.session_id is not None:
            raise SessionEnded(NOT_SIGNED_IN)
        raise RevokedKey("This API key was revoked, or its owner disabled, while the request was being processed.")
    return msgspec.structs.replace(principal, role=Role(row["role"]), operator=row["operator"])


async def authenticate(connection: asyncpg.Connection[Any], key_hash: bytes) -> Principal:
    """Look up a principal by the hash of its key. Raises an AuthError for an invalid key."""
    row = await connection.fetchrow(LOOKUP, key_hash)
    problem: AuthError | None = None
    if row is None:
        raise InvalidKey(UNKNOWN_KEY)
    if row["revoked"]:
        problem = RevokedKey("This API key has been revoked.")
    elif row["expired"]:
        problem = ExpiredKey("This API key has expired.")
    elif row["disabled"]:
        problem = TenantDisabled("The owner of this admin key or the organization is disabled.")
    if problem is not None:
        raise problem
    await connection.execute(USED, row["key_id"], LAST_USED_EVERY)
    return _principal(row)


async def signed_in(
    connection: asyncpg.Connection[Any], token_hash: bytes, idle: timedelta, *, used: bool = True
) -> Principal:
    """Look up a principal by the hash of its session's token. idle: unused time after which a session ends. used:
    whether this counts as use. Raises an AuthError for an invalid session."""
    row = await connection.fetchrow(SESSION, token_hash, idle)
    if row is None:
        raise SessionEnded(NOT_SIGNED_IN)
    if row["disabled"]:
        raise TenantDisabled("This member or the organization is disabled.")
    if used:
        await connection.execute(SEEN, row["session_id"], min(LAST_USED_EVERY, idle / SEEN_SHARE))
    return _principal(row)


def _principal(row: asyncpg.Record) -> Principal:
    return msgspec.convert({name: row.get(name) for name in Principal.__struct_fields__}, Principal)
