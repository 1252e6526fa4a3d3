"""Puts the settings' objectives in force: as a new version in the database if they differ from the newest one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg
import msgspec

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import Objective
from storage.audit_log import Actor, Change, record

LOCK_ID = 0x736C6F76
"""Key of the advisory lock of writers, the bytes of `slov`."""
NEWEST = """
SELECT version, tier, length, ttft_ms, tpot_ms, itl_max_ms, target
  FROM gateway.slo_objectives WHERE version = (SELECT max(version) FROM gateway.slo_objectives)
"""
HISTORY = """
SELECT version, valid_from, tier, length, ttft_ms, tpot_ms, itl_max_ms FROM gateway.slo_objectives ORDER BY version DESC
"""
INSERT = """
INSERT INTO gateway.slo_objectives (version, valid_from, tier, length, ttft_ms, tpot_ms, itl_max_ms, target)
VALUES ($1, date_trunc('minute', now()) + interval '1 minute', $2, $3, $4, $5, $6, $7)
"""
ACTOR = Actor.system("slipstream worker")
"""The actor that the audit log records."""


async def in_force(connection: asyncpg.Connection[Any]) -> tuple[int, tuple[Objective, ...]]:
    """The newest version's number and objectives, by tier and rising length; 0 and none before the first version."""
    rows = await connection.fetch(NEWEST)
    objectives = [{name: row[name] for name in Objective.__struct_fields__} for row in rows]
    return (rows[0]["version"] if rows else 0), _sorted(msgspec.convert(objectives, list[Objective]))


async def promised_since(connection: asyncpg.Connection[Any]) -> dict[tuple[Tier, LengthClass], datetime]:
    """By class, the minute since which its requests are judged by the figures in force; only for classes whose figures
    changed."""
    return unchanged_since(await connection.fetch(HISTORY))


def unchanged_since(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Tier, LengthClass], datetime]:
    """`promised_since` from rows of `HISTORY`, the newest version first. A new target alone changes no verdict."""
    versions: dict[int, tuple[datetime, dict[tuple[str, str], tuple[Any, ...]]]] = {}
    for row in rows:
        _, figures = versions.setdefault(row["version"], (row["valid_from"], {}))
        figures[row["tier"], row["length"]] = (row["ttft_ms"], row["tpot_ms"], row["itl_max_ms"])
    newest, *older = versions.values() or [(datetime.min, {})]
    since: dict[tuple[Tier, LengthClass], datetime] = {}
    for (tier, length), promised in newest[1].items():
        began = newest[0]
        for valid_from, figures in older:
            before = figures.get((tier, length))
            if before not in (None, promised):
                since[Tier(tier), LengthClass(length)] = began.astimezone(UTC)
                break
            began = began if before is None else valid_from
    return since


async def adopt(connection: asyncpg.Connection[Any], objectives: tuple[Objective, ...]) -> int:
    """Make objectives the newest version, unless they are; returns its number. It is in force from the next minute."""
    wanted = _sorted(objectives)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK_ID)
        version, current = await in_force(connection)
        if current == wanted:
            return version
        rows = [(version + 1, *msgspec.structs.astuple(each)) for each in wanted]
        await connection.executemany(INSERT, rows)
        change = Change(
            action="objectives.adopt",
            subject_id=str(version + 1),
            organization_id=None,
            before={"objectives": current} if current else None,
            after={"objectives": wanted},
        )
        await record(connection, ACTOR, change)
    return version + 1


def _sorted(objectives: Iterable[Objective]) -> tuple[Objective, ...]:
    tiers, lengths = list(Tier), list(LengthClass)
    return tuple(sorted(objectives, key=lambda each: (tiers.index(each.tier), lengths.index(each.length))))
