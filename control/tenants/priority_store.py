"""Reads, writes and deletes classes and shares in PostgreSQL for administrators, and so notifies gateways."""

from __future__ import annotations

from uuid import UUID

from contracts.generation import Tier
from control.tenants.limit_store import delete_row, rows_of, rows_within
from gateway.limits.levels import Level
from gateway.limits.priorities import Priorities, PriorityRule
from gateway.limits.priority_store import priorities_of_all, rule_of
from gateway.limits.store import Connection

_ABOVE = """
SELECT project_id, organization_id
  FROM gateway.api_keys JOIN gateway.projects ON projects.id = project_id
 WHERE api_keys.id = $1
"""
_PUT = """
INSERT INTO gateway.priorities (level, subject_id, tier, service_class, share) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (subject_id, level, tier)
    DO UPDATE SET (service_class, share, updated_at) = ($4, $5, now())
"""


async def priorities_of_key(connection: Connection, key_id: UUID) -> Priorities:
    """The classes and shares of a key's requests."""
    row = await connection.fetchrow(_ABOVE, key_id)
    assert row is not None  # the caller has found it by its name
    [found] = await priorities_of_all(connection, [(row["organization_id"], row["project_id"], key_id)])
    return found


async def rules_of(connection: Connection, level: Level, subject_id: UUID | str) -> list[PriorityRule]:
    """A subject's rules, the one for all tiers first."""
    return [rule_of(row) for row in await rows_of(connection, "priorities", level, subject_id)]


async def rules_within(
    connection: Connection, organization_id: UUID | None, subject_id: UUID | None = None
) -> list[tuple[str, PriorityRule]]:
    """Like `limit_store.rules_within`, for classes and shares."""
    rows = await rows_within(connection, "priorities", organization_id, subject_id)
    return [(row["name"], rule_of(row)) for row in rows]


async def put_rule(connection: Connection, rule: PriorityRule) -> None:
    """Set the rule of its subject and tier. A rule without class and share is deleted."""
    if rule.service_class is None and rule.share is None:
        await delete_rule(connection, rule.level, rule.subject_id, rule.tier)
        return
    service_class = rule.service_class.value if rule.service_class else None
    tier = rule.tier.value if rule.tier else None
    await connection.execute(_PUT, rule.level.value, rule.subject_id, tier, service_class, rule.share)


async def delete_rule(connection: Connection, level: Level, subject_id: UUID | str, tier: Tier | None) -> None:
    """Delete a rule, if it exists."""
    await delete_row(connection, "priorities", level, subject_id, tier)
