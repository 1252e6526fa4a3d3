"""Reads classes and shares from PostgreSQL, together with a key. Administrators write them
(control/tenants/priority_store.py), and gateways are notified of each change."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from contracts.generation import Tier
from contracts.service_class import ServiceClass
from gateway.limits.levels import Level
from gateway.limits.priorities import Priorities, PriorityRule
from gateway.limits.store import Connection, Subject, rules_of_all


async def priorities_of_all(connection: Connection, subjects: Sequence[Subject]) -> list[Priorities]:
    """Priorities of many keys, in the order of the subjects."""
    return [Priorities.of(rules) for rules in await rules_of_all(connection, "priorities", subjects, rule_of)]


def rule_of(row: asyncpg.Record) -> PriorityRule:
    """A row of `gateway.priorities`."""
    tier, service_class = row["tier"], row["service_class"]
    return PriorityRule(
        Level(row["level"]),
        str(row["subject_id"]),
        Tier(tier) if tier else None,
        ServiceClass(service_class) if service_class else None,
        row["share"],
    )
