"""Stores responses in PostgreSQL, for requests with `store` only. Only keys of their project find them.

A client waits for reads and writes, so an unreachable database is an error, never a conversation without its history.
Each organization has bounded room; its oldest responses make room for new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from contracts.errors import BodyTooLarge, Conflict, NotFound
from contracts.generation import Caller
from contracts.misfit import shortened
from gateway.responses.bounds import MAX_HISTORY_BYTES, UNFINISHED, make_room
from gateway.responses.conversations import Grown, grow
from gateway.responses.reached import StorePool, owner_of

MAX_RESPONSES = 10_000
"""Limit of one organization's responses."""
MAX_TURNS = 1_000
"""Limit of the responses that a request continues."""
_OWN = "organization_id = $1 AND project_id = $2"
INSERT = """
INSERT INTO gateway.responses (organization_id, project_id, id, previous_id, input, response, size_bytes)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
MAKE_ROOM = make_room("gateway.responses", "recorded_at", MAX_RESPONSES, f"status IN {UNFINISHED}")
GET = f"SELECT id, input, response FROM gateway.responses WHERE {_OWN} AND id = ANY($3::text[])"  # noqa: S608
KNOWN = f"SELECT true FROM gateway.responses WHERE {_OWN} AND id = $3"  # noqa: S608
DELETE = f"DELETE FROM gateway.responses WHERE {_OWN} AND id = $3 RETURNING id"  # noqa: S608
HISTORY = f"""
WITH RECURSIVE chain AS (
    SELECT id, previous_id, size_bytes::bigint AS bytes, 1 AS turns FROM gateway.responses WHERE {_OWN} AND id = $3
    UNION ALL
    SELECT earlier.id, earlier.previous_id, chain.bytes + earlier.size_bytes, chain.turns + 1
      FROM chain
      JOIN gateway.responses AS earlier ON earlier.id = chain.previous_id
           AND earlier.organization_id = $1 AND earlier.project_id = $2
     WHERE chain.turns < {MAX_TURNS} AND chain.bytes <= {MAX_HISTORY_BYTES})
SELECT chain.id, chain.previous_id, chain.bytes, input, response, status
  FROM chain JOIN gateway.responses USING (id) ORDER BY chain.turns DESC
"""  # noqa: S608


class Stored(NamedTuple):
    """JSON of the request's own items, and of the response object."""

    input: bytes
    response: bytes


class ResponseStore:
    """The store of one gateway process. Every method raises ResponsesUnavailable if the database is unreachable."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def keep(
        self, caller: Caller, response_id: str, previous_id: str | None, stored: Stored, grown: Grown | None = None
    ) -> None:
        """Store a response durably, and make room for it. grown: the items by which its conversation grows."""
        size_bytes = len(stored.input) + len(stored.response)
        async with self._pool.reached(caller.organization_id) as connection, connection.transaction():
            await connection.execute(INSERT, *owner_of(caller), response_id, previous_id, *stored, size_bytes)
            await connection.execute(MAKE_ROOM, caller.organization_id)
            if grown is not None:
                await grow(connection, caller, grown)

    async def get(self, caller: Caller, response_id: str) -> Stored:
        """A response of the caller's project. Raises NotFound."""
        found = await self.several(caller, [response_id])
        if response_id not in found:
            raise unknown(response_id, "response_id")
        return found[response_id]

    async def require(self, caller: Caller, response_id: str) -> None:
        """Raise NotFound for a response that the caller's project does not have."""
        async with self._pool.reached(caller.organization_id) as connection:
            if not await connection.fetchval(KNOWN, *owner_of(caller), response_id):
                raise unknown(response_id, "response_id")

    async def several(self, caller: Caller, response_ids: Sequence[str]) -> dict[str, Stored]:
        """The responses with these ids that are stored for the caller's project, by id."""
        async with self._pool.reached(caller.organization_id) as connection:
            rows = await connection.fetch(GET, *owner_of(caller), response_ids)
        return {row["id"]: Stored(row["input"], row["response"]) for row in rows}

    async def delete(self, caller: Caller, response_id: str) -> None:
        """Delete a response of the caller's project. Raises NotFound."""
        async with self._pool.reached(caller.organization_id) as connection:
            deleted = await connection.fetchval(DELETE, *owner_of(caller), response_id)
        if deleted is None:
            raise unknown(response_id, "response_id")

    async def history(self, caller: Caller, response_id: str) -> list[Stored]:
        """A response and all earlier ones, oldest first. Raises NotFound if any of them is missing, Conflict if the
        response has no output, BodyTooLarge beyond the limits."""
        async with self._pool.reached(caller.organization_id) as connection:
            rows = await connection.fetch(HISTORY, *owner_of(caller), response_id)
        if not rows:
            raise unknown(response_id, "previous_response_id")
        oldest, newest = rows[0], rows[-1]
        if newest["status"] is not None:  # earlier ones had their output when it was created
            step = (
                "Retrieve it until it is completed, then send this request again."
                if newest["status"] in UNFINISHED
                else "Continue an earlier response, or create this one again."
            )
            raise Conflict(
                f"The response {response_id} cannot be continued: its status is '{newest['status']}'. {step}",
                param="previous_response_id",
            )
        if oldest["bytes"] > MAX_HISTORY_BYTES or (len(rows) == MAX_TURNS and oldest["previous_id"] is not None):
            raise BodyTooLarge(
                f"The conversation before this request is longer than {MAX_TURNS} responses or {MAX_HISTORY_BYTES} "
                "bytes, the limits. Send what the model needs of it as 'input', without 'previous_response_id'.",
                param="previous_response_id",
            )
        if oldest["previous_id"] is not None:
            raise unknown(oldest["previous_id"], "previous_response_id")
        return [Stored(row["input"], row["response"]) for row in rows]


def unknown(response_id: str, param: str) -> NotFound:
    """The error for a response that the caller's project does not have."""
    return NotFound(
        f"There is no stored response {shortened(repr(response_id))}: it was created without 'store': true, was "
        "deleted (by a request, after its retention or to make room), or belongs to another project. Send the "
        "conversation as 'input'.",
        param=param,
    )
