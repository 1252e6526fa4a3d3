"""Reads rules from PostgreSQL, together with a key. Administrators write them (control/tenants/limit_store.py), and
gateways are notified of each change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import asyncpg

from contracts.generation import Tier
from gateway.limits.levels import Level, Levels, Limits, Rule

_OF_SUBJECTS = "SELECT * FROM gateway.{table} WHERE subject_id = ANY ($1::uuid[])"
Connection: TypeAlias = "asyncpg.Connection[Any]"
Subject: TypeAlias = tuple[UUID | str, UUID | str, UUID | str]
"""Organization, project and key."""
RuleT = TypeVar("RuleT")


async def levels_of_all(connection: Connection, subjects: Sequence[Subject]) -> list[Levels]:
    """Limits of many keys, in the order of the subjects."""
    found = await rules_of_all(connection, "limits", subjects, rule_of)
    return [Levels.of(str(ids[0]), rules) for ids, rules in zip(subjects, found, strict=True)]


async def rules_of_all(
    connection: Connection, table: str, subjects: Sequence[Subject], rule_of: Callable[[asyncpg.Record], RuleT]
) -> list[list[RuleT]]:
    """The rules of a table that concern each key. subjects: like `levels_of_all`."""
    named = [tuple(map(str, ids)) for ids in subjects]
    rules: dict[tuple[Level, str], list[RuleT]] = {}
    for row in await connection.fetch(_OF_SUBJECTS.format(table=table), list({each for ids in named for each in ids})):
        rules.setdefault((Level(row["level"]), str(row["subject_id"])), []).append(rule_of(row))
    # Level has the order of a subject's ids.
    return [[rule for pair in zip(Level, ids, strict=True) for rule in rules.get(pair, ())] for ids in named]


def rule_of(row: asyncpg.Record) -> Rule:
    """A row of `gateway.limits`."""
    tier, limits = row["tier"], [row[name] for name in Limits.__struct_fields__]
    created_ms = int(row["created_at"].timestamp() * 1_000)
    return Rule(Level(row["level"]), str(row["subject_id"]), Tier(tier) if tier else None, Limits(*limits), created_ms)
