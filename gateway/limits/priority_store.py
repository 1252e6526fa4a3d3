"""Classes and shares in PostgreSQL, as they are read with a key. Administrators write them
(control/tenants/priority_store.py), and gateways hear of each change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from contracts.generation import Tier
from contracts.service_class import ServiceClass
from gateway.limits.levels import Level
from gateway.limits.priorities import Priorities, PriorityRule

_OF_SUBJECTS = "SELECT * FROM gateway.priorities WHERE subject_id = ANY ($1::uuid[])"
Connection: TypeAlias = "asyncpg.Connection[Any]"


async def priorities_of_all(
    connection: Connection, subjects: Sequence[tuple[UUID | str, UUID | str, UUID | str]]
) -> list[Priorities]:
    """Priorities of many keys. subjects: (organization, project, key) of each; returned in order."""
    named = [(str(organization), str(project), str(key)) for organization, project, key in subjects]
    rules: dict[tuple[Level, str], list[PriorityRule]] = {}
    for row in await connection.fetch(_OF_SUBJECTS, list({each for ids in named for each in ids})):
        rule = rule_of(row)
        rules.setdefault((rule.level, rule.subject_id), []).append(rule)
    # Level has the order of a subject's ids.
    return [
        Priorities.of(rule for pair in zip(Level, ids, strict=True) for rule in rules.get(pair, ())) for ids in named
    ]


def rule_of(row: asyncpg.Record) -> PriorityRule:
    """A row of `gateway.priorities`."""
    tier, named = row["tier"], row["service_class"]
    return PriorityRule(
        Level(row["level"]),
        str(row["subject_id"]),
        Tier(tier) if tier else None,
        ServiceClass(named) if named else None,
        row["share"],
    )
