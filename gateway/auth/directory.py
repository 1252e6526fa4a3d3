"""Keys as the database knows them: many in one question, each with what limits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import asyncpg

from contracts.generation import Caller, Tier
from gateway.auth.key_record import KeyRecord, Reason, Refusal
from gateway.auth.scopes import Scope
from gateway.limits.levels import Levels
from gateway.limits.store import levels_of_all

# Of a key that was rotated, the secret before still opens until the end of the overlap. UNION and not OR: each half
# is one search of an index for all hashes.
LOOKUP = """
SELECT asked, key.id, project_id, organization_id, revoked_at IS NOT NULL AS revoked,
       projects.disabled_at IS NOT NULL AS project_disabled,
       organizations.disabled_at IS NOT NULL AS organization_disabled,
       extract(epoch FROM opens_until)::float8 AS expires_at, scopes, models, tiers,
       store_prompts, allow_reviews, internal
  FROM (SELECT hash AS asked, expires_at AS opens_until, id, project_id, revoked_at, scopes
          FROM gateway.api_keys WHERE hash = ANY ($1::bytea[])
         UNION ALL
        SELECT previous_hash, least(expires_at, previous_expires_at), id, project_id, revoked_at, scopes
          FROM gateway.api_keys WHERE previous_hash = ANY ($1::bytea[])) AS key
  JOIN gateway.projects ON projects.id = project_id
  JOIN gateway.organizations ON organizations.id = organization_id
"""

ValueT = TypeVar("ValueT")


async def read_keys(connection: asyncpg.Connection[Any], hashes: Sequence[bytes]) -> dict[bytes, KeyRecord | Refusal]:
    """What is known of every hash; of one never issued, a Refusal. Raises what asyncpg raises.

    Two reads: a change in between is announced, and the key then read again.
    """
    rows = await connection.fetch(LOOKUP, list(hashes))
    answers: dict[bytes, KeyRecord | Refusal] = {each: Refusal(Reason.UNKNOWN) for each in hashes}
    if rows:
        subjects = [(row["organization_id"], row["project_id"], row["id"]) for row in rows]
        for row, levels in zip(rows, await levels_of_all(connection, subjects), strict=True):
            answers[row["asked"]] = _answer(row, levels)
    return answers


def _answer(row: asyncpg.Record, levels: Levels) -> KeyRecord | Refusal:
    caller = Caller(
        organization_id=str(row["organization_id"]), project_id=str(row["project_id"]), key_id=str(row["id"])
    )
    if row["revoked"]:
        return Refusal(Reason.REVOKED, caller)
    if row["organization_disabled"]:
        return Refusal(Reason.ORGANIZATION_DISABLED, caller)
    if row["project_disabled"]:
        return Refusal(Reason.PROJECT_DISABLED, caller)
    return KeyRecord(
        caller=caller,
        levels=levels,
        expires_at=row["expires_at"],
        scopes=_set(row["scopes"], Scope),
        models=_set(row["models"], str),
        tiers=_set(row["tiers"], Tier),
        store_prompts=row["store_prompts"],
        allow_reviews=row["allow_reviews"],
        internal=row["internal"],
    )


def _set(values: list[str] | None, kind: Callable[[str], ValueT]) -> frozenset[ValueT] | None:
    return None if values is None else frozenset(map(kind, values))
