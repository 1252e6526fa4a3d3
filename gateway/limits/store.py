"""Rules in PostgreSQL, as they are read with a key. Administrators write them (control/tenants/limit_store.py), and
gateways hear of each change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from contracts.generation import Tier
from gateway.limits.levels import Level, Levels, Limits, Rule

_OF_SUBJECTS = "SELECT * FROM gateway.limits WHERE subject_id = ANY ($1::uuid[])"
Connection: TypeAlias = "asyncpg.Connection[Any]"


async def levels_of_all(
    connection: Connection, subjects: Sequence[tuple[UUID | str, UUID | str, UUID | str]]
) -> list[Levels]:
    """Limits of many keys. subjects: (organization, project, key) of each; returned in order."""
    named = [(str(organization), str(project), str(key)) for organization, project, key in subjects]
    rules: dict[tuple[Level, str], list[Rule]] = {}
    for row in await connection.fetch(_OF_SUBJECTS, list({each for ids in named for each in ids})):
        rule = rule_of(row)
        rules.setdefault((rule.level, rule.subject_id), []).append(rule)
    # Levels has the order of a subject's ids.
    return [
        Levels.of(ids[0], [rule for pair in zip(Level, ids, strict=True) for rule in rules.get(pair, ())])
        for ids in named
    ]


def rule_of(row: asyncpg.Record) -> Rule:
    """A row of `gateway.limits`."""
    tier, limits = row["tier"], [row[name] for name in Limits.__struct_fields__]
    return Rule(Level(row["level"]), str(row["subject_id"]), Tier(tier) if tier else None, Limits(*limits))
