"""Queues background responses as rows, which the worker runs (`control/responses/`).

A row of `background_responses` exists until its response has finished. Cancelling or deleting the response deletes the
row, and the worker that has its lease stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from contracts.errors import Conflict, InvalidField, RateLimited, ResponsesUnavailable, ScopeMissing
from contracts.generation import Caller
from gateway.auth.key_record import KeyRecord
from gateway.responses.bounds import UNFINISHED
from gateway.responses.reached import StorePool, owner_of
from gateway.responses.store import MAKE_ROOM, Stored, unknown

if TYPE_CHECKING:
    import asyncpg

ASKED = 3
"""Limit of attempts to find out how a response ended."""
MAX_UNFINISHED = 100
"""Limit of an organization's unfinished responses, like that of its batches."""
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('background responses of ' || $1, 0))"
COUNT = "SELECT count(*) FROM gateway.background_responses WHERE organization_id = $1"
QUEUE = """
WITH stored AS (
    INSERT INTO gateway.responses (organization_id, project_id, id, previous_id, input, response, size_bytes, status)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'queued'))
INSERT INTO gateway.background_responses (organization_id, id, key_id, conversation_id, request, next_event)
VALUES ($1, $3, $8, $9, $10, $11) ON CONFLICT (conversation_id) DO NOTHING RETURNING id
"""
FIRST_EVENTS = ("response.created", "response.queued")
"""Events of a stream that are sent before a run."""
KEEP_FIRST = "INSERT INTO gateway.response_events (response_id, first, next, events) VALUES ($1, 0, $2, $3)"
IN_CONVERSATION = """
SELECT work.id FROM gateway.background_responses AS work JOIN gateway.responses AS response USING (id)
 WHERE response.organization_id = $1 AND response.project_id = $2 AND conversation_id = $3 AND id <> $4
"""
STATUS = "SELECT status FROM gateway.responses WHERE organization_id = $1 AND project_id = $2 AND id = $3"
HOLD = """
SELECT response, status FROM gateway.responses WHERE organization_id = $1 AND project_id = $2 AND id = $3 FOR UPDATE
"""
FORGET = "DELETE FROM gateway.background_responses WHERE id = $1"
CANCEL = """
UPDATE gateway.responses SET status = 'cancelled', response = $2, size_bytes = length(input) + length($2::bytea)
 WHERE id = $1
"""


class Queued(NamedTuple):
    """A response for the worker to generate. request: its JSON. events: the first of its stream; empty without one."""

    response_id: str
    previous_id: str | None
    conversation_id: str | None
    stored: Stored
    request: bytes
    events: bytes


class BackgroundResponses:
    """The queue of one gateway process. Every method raises ResponsesUnavailable if the database is unreachable."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def queue(self, caller: Caller, queued: Queued) -> None:
        """Store a response durably, as queued. Raises RateLimited, and Conflict if its conversation is busy."""
        size_bytes = sum(map(len, queued.stored)) + len(queued.request)
        async with self._pool.reached(caller.organization_id) as connection, connection.transaction():
            await connection.execute(LOCK, caller.organization_id)
            if await connection.fetchval(COUNT, caller.organization_id) >= MAX_UNFINISHED:
                raise RateLimited(
                    f"This organization has {MAX_UNFINISHED} unfinished background responses, which is the limit. "
                    "Wait until one finishes, or cancel one.",
                    retry_after_s=5.0,
                )
            response = *owner_of(caller), queued.response_id, queued.previous_id, *queued.stored, size_bytes
            first_event = len(FIRST_EVENTS) if queued.events else None
            work = caller.key_id, queued.conversation_id, queued.request, first_event
            if await connection.fetchval(QUEUE, *response, *work) is None:
                raise _conversation_waits(None)
            if queued.events:
                await connection.execute(KEEP_FIRST, queued.response_id, first_event, queued.events)
            await connection.execute(MAKE_ROOM, caller.organization_id)

    async def require_finished(self, caller: Caller, conversation_id: str, response_id: str) -> None:
        """Raise Conflict for a conversation with a background response other than this one."""
        async with self._pool.reached(caller.organization_id) as connection:
            found = await connection.fetchval(IN_CONVERSATION, *owner_of(caller), conversation_id, response_id)
        if found is not None:
            raise _conversation_waits(found)

    async def was_ended(self, caller: Caller, response_id: str) -> bool:
        """Whether a client cancelled or deleted it; False if the database is unreachable. The query has a turn that no
        organization's requests can delay."""
        for _ in range(ASKED):
            try:
                async with self._pool.reached("") as connection:
                    return await ended_by_client(connection, caller, response_id)
            except ResponsesUnavailable:
                continue
        return False

    async def cancel(self, caller: Caller, response_id: str, cancelled: Callable[[bytes], bytes]) -> bytes:
        """Cancel a response unless it has finished. Returns its JSON, which `cancelled` changes. Raises NotFound."""
        async with self._pool.reached(caller.organization_id) as connection, connection.transaction():
            row = await connection.fetchrow(HOLD, *owner_of(caller), response_id)
            if row is None:
                raise unknown(response_id, "response_id")
            response: bytes = row["response"]
            if row["status"] in UNFINISHED:
                response = cancelled(response)
                await connection.execute(FORGET, response_id)
                await connection.execute(CANCEL, response_id, response)
        return response


async def ended_by_client(connection: asyncpg.Connection[Any], caller: Caller, response_id: str) -> bool:
    """Whether a client cancelled or deleted a response that ran."""
    row = await connection.fetchrow(STATUS, *owner_of(caller), response_id)
    return row is None or row["status"] == "cancelled"


def require_tenants(key: KeyRecord) -> None:
    """Raise InvalidField for a batch's line, and ScopeMissing for the deployment's own key: neither may be queued."""
    if key.line:
        raise InvalidField("'background' is not allowed in a batch line. Remove it.", param="background")
    if key.purpose is not None:
        raise ScopeMissing(
            "This internal key cannot create background responses. Use a project's API key.", param="background"
        )


def _conversation_waits(response_id: str | None) -> Conflict:
    """response_id: the unfinished response's, if it is known."""
    if response_id is None:
        message = (
            "Another background response of this conversation has not finished. Wait until it finishes, or cancel it."
        )
    else:
        message = (
            f"The conversation has an unfinished background response, '{response_id}'. Wait until it finishes, or "
            "cancel it."
        )
    return Conflict(message, param="conversation")
