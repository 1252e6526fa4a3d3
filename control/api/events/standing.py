"""Checks whether the clients of streams still have access, with one statement for all keys and one for all sessions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from control.api.principal import Principal

KEYS = """
SELECT shown.secret_hash AS which, role, operator
  FROM unnest($1::uuid[], $2::bytea[]) AS shown (key_id, secret_hash)
  JOIN gateway.admin_keys ON admin_keys.id = key_id
   AND (hash = secret_hash OR previous_hash = secret_hash AND previous_expires_at > now())
  JOIN gateway.principals ON principals.id = principal_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE revoked_at IS NULL AND coalesce(expires_at > now(), true)
   AND principals.disabled_at IS NULL AND organizations.disabled_at IS NULL
"""
SESSIONS = """
SELECT console_sessions.id AS which, role, operator
  FROM gateway.console_sessions
  JOIN gateway.console_accounts ON console_accounts.id = account_id
  JOIN gateway.principals ON principals.id = principal_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE console_sessions.id = ANY($1) AND expires_at > now() AND last_seen_at > now() - $2::interval
   AND principals.disabled_at IS NULL AND organizations.disabled_at IS NULL
"""


class Standing(Struct, frozen=True):
    """Access of a key's secret, or of a session. which: the secret's hash, or the session's id."""

    which: UUID | bytes | None
    role: str
    operator: bool


def standing_of(principal: Principal) -> Standing:
    """The access that the principal had when its request began."""
    return Standing(principal.session_id or principal.secret_hash, principal.role.value, principal.operator)


async def standings(
    connection: asyncpg.Connection[Any], principals: Iterable[Principal], idle: timedelta
) -> set[Standing]:
    """The principals' current access, without keys and sessions that are no longer valid. idle: unused time after which
    a session ends; a stream does not count as use."""
    known = list(principals)
    sessions = [each.session_id for each in known if each.session_id is not None]
    keys = [each for each in known if each.session_id is None]
    shown = [each.key_id for each in keys], [each.secret_hash for each in keys]
    rows = await connection.fetch(KEYS, *shown) if keys else []
    rows += await connection.fetch(SESSIONS, sessions, idle) if sessions else []
    return {Standing(row["which"], row["role"], row["operator"]) for row in rows}
