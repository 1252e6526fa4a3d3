"""Reads, writes and deletes rules in PostgreSQL for administrators. Gateways are notified of each change."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import InvalidField
from contracts.generation import Tier
from contracts.misfit import sentence_and_path
from gateway.limits.levels import Level, Limits, Rule
from gateway.limits.store import Connection, rule_of

_OF_SUBJECT = "SELECT * FROM gateway.{table} WHERE level = $1 AND subject_id = $2 ORDER BY tier NULLS FIRST"
_WITHIN = """
WITH subjects AS (
    SELECT 'organization' AS level, id, name, id AS organization_id FROM gateway.organizations
     UNION ALL
    SELECT 'project', id, name, organization_id FROM gateway.projects
     UNION ALL
    SELECT 'key', key.id, key.name, project.organization_id
      FROM gateway.api_keys AS key JOIN gateway.projects AS project ON project.id = key.project_id
)
SELECT subjects.name, rules.*
  FROM gateway.{table} AS rules JOIN subjects USING (level) WHERE subjects.id = subject_id
   AND ($1::uuid IS NULL OR subjects.organization_id = $1) AND ($2::uuid IS NULL OR subject_id = $2)
 ORDER BY array_position(ARRAY['organization', 'project', 'key'], level), subjects.name, subject_id, tier NULLS FIRST
"""
# The limits have the order of `Limits`. A rule that gets a budget counts as new: it may have counted nothing before.
_PUT = """
INSERT INTO gateway.limits
       (level, subject_id, tier, requests_per_minute, input_tokens_per_minute, output_tokens_per_minute,
        tokens_per_minute, max_concurrency, tokens_per_day, money_micro_per_month, max_prompt_tokens)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (subject_id, level, tier)
    DO UPDATE SET (requests_per_minute, input_tokens_per_minute, output_tokens_per_minute, tokens_per_minute,
                   max_concurrency, tokens_per_day, money_micro_per_month, max_prompt_tokens, updated_at, created_at)
                = ($4, $5, $6, $7, $8, $9, $10, $11, now(),
                   CASE WHEN limits.money_micro_per_month IS NULL THEN now() ELSE limits.created_at END)
"""
_DELETE = "DELETE FROM gateway.{table} WHERE level = $1 AND subject_id = $2 AND tier IS NOT DISTINCT FROM $3"


async def rules_of(connection: Connection, level: Level, subject_id: UUID | str) -> list[Rule]:
    """A subject's rules, the one for all tiers first."""
    return [rule_of(row) for row in await rows_of(connection, "limits", level, subject_id)]


async def rows_of(connection: Connection, table: str, level: Level, subject_id: UUID | str) -> list[asyncpg.Record]:
    """A subject's rows in a table of rules, the one for all tiers first. table: a trusted name."""
    rows: list[asyncpg.Record] = await connection.fetch(_OF_SUBJECT.format(table=table), level.value, subject_id)
    return rows


async def rules_within(
    connection: Connection, organization_id: UUID | None, subject_id: UUID | None = None
) -> list[tuple[str, Rule]]:
    """The rules of an organization and of all its projects and keys, or of only one subject, with names."""
    return [(row["name"], rule_of(row)) for row in await rows_within(connection, "limits", organization_id, subject_id)]


async def rows_within(
    connection: Connection, table: str, organization_id: UUID | None, subject_id: UUID | None
) -> list[asyncpg.Record]:
    """Like `rules_within`, for any table of rules; rows have the subject's name. table: a trusted name."""
    rows: list[asyncpg.Record] = await connection.fetch(_WITHIN.format(table=table), organization_id, subject_id)
    return rows


async def put_rule(
    connection: Connection, level: Level, subject_id: UUID | str, tier: Tier | None, limits: Limits
) -> Rule:
    """Set the subject's rule for the tier, or for all tiers. A rule that limits nothing is deleted.

    Raises InvalidField for a limit out of range.
    """
    check(limits)
    if not limits:
        await delete_rule(connection, level, subject_id, tier)
    else:
        values = msgspec.structs.astuple(limits)
        await connection.execute(_PUT, level.value, subject_id, tier.value if tier else None, *values)
    return Rule(level, str(subject_id), tier, limits)


async def delete_rule(connection: Connection, level: Level, subject_id: UUID | str, tier: Tier | None) -> bool:
    """Delete a rule, and return whether it existed."""
    return await delete_row(connection, "limits", level, subject_id, tier)


async def delete_row(
    connection: Connection, table: str, level: Level, subject_id: UUID | str, tier: Tier | None
) -> bool:
    """Like `delete_rule`, for any table of rules. table: a trusted name."""
    statement = _DELETE.format(table=table)
    done: str = await connection.execute(statement, level.value, subject_id, tier.value if tier else None)
    return not done.endswith(" 0")


def check(limits: Limits) -> None:
    """Raises InvalidField, with the name of the limit that is out of range."""
    try:
        msgspec.convert(msgspec.to_builtins(limits), Limits)
    except msgspec.ValidationError as error:
        reason, name = sentence_and_path(str(error))
        value = getattr(limits, name, None)
        raise InvalidField(
            f"{name}: {value} is out of range ({reason.rstrip('.')}); leave it out for no limit", param=name
        ) from None
