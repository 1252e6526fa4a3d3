"""Whether those who opened streams still may: their keys and sessions, all in two statements."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from gateway.admin.principal import Principal

KEYS = """
SELECT admin_keys.id, role, operator
  FROM gateway.admin_keys
  JOIN gateway.principals ON principals.id = principal_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE admin_keys.id = ANY($1) AND revoked_at IS NULL AND coalesce(expires_at > now(), true)
   AND principals.disabled_at IS NULL AND organizations.disabled_at IS NULL
"""
SESSIONS = """
SELECT console_sessions.id, role, operator
  FROM gateway.console_sessions
  JOIN gateway.console_accounts ON console_accounts.id = account_id
  JOIN gateway.principals ON principals.id = principal_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE console_sessions.id = ANY($1) AND expires_at > now() AND last_seen_at > now() - $2::interval
   AND principals.disabled_at IS NULL AND organizations.disabled_at IS NULL
"""


class Standing(Struct, frozen=True):
    """What a key or session opens. which: its id."""

    which: UUID | None
    role: str
    operator: bool


def standing_of(principal: Principal) -> Standing:
    """As it was when its request began."""
    return Standing(principal.session_id or principal.key_id, principal.role.value, principal.operator)


async def standings(
    connection: asyncpg.Connection[Any], principals: Iterable[Principal], idle: timedelta
) -> set[Standing]:
    """As things are now, without those that open nothing any more. idle: after how long unused a session has ended; a
    stream is no use of one."""
    known = list(principals)
    sessions = [each.session_id for each in known if each.session_id is not None]
    keys = [each.key_id for each in known if each.session_id is None]
    rows = await connection.fetch(KEYS, keys) if keys else []
    rows += await connection.fetch(SESSIONS, sessions, idle) if sessions else []
    return {Standing(row["id"], row["role"], row["operator"]) for row in rows}
