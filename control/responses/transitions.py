"""The steps of the worker with a response in the background: each names the worker's lease.

    queued ──> in_progress ──> completed | incomplete | failed
       └───────────┴──> cancelled, by the gateway

The row of `background_responses` is deleted with the transaction that ends the response and bills it. Like the gateway,
each step locks the response before that row.
"""

from __future__ import annotations

import msgspec

from contracts.generation import Caller
from control.deferred.bills import billing_record, ensure_partitions_and_store
from control.deferred.leases import Claim, Connection, LeaseLost, Leases
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger
from gateway.responses.conversations import Grown, StoredItem, grow
from gateway.wire.responses.stored import identified, with_fields

WINDOW_S = 86_400
"""Time after which a response that could not be run fails."""
GATEWAY_ID = "responses"
"""Names the worker in the ledger rows by which responses are billed."""
LEASES = Leases("gateway.background_responses", "true", "true")

_READ = """
SELECT response.organization_id, response.project_id, work.key_id, api_keys.hash, conversation_id, request, failures,
       response, status,
       extract(epoch FROM recorded_at - now())::float + $3 AS left_s
  FROM gateway.background_responses AS work JOIN gateway.responses AS response USING (id)
  LEFT JOIN gateway.api_keys ON api_keys.id = work.key_id
 WHERE work.id = $1 AND work.lease_id = $2
"""
_BY_STATUS = """
SELECT status, count(*)::integer AS responses
  FROM gateway.background_responses JOIN gateway.responses USING (id) GROUP BY status
"""
_BEGIN = "UPDATE gateway.responses SET status = 'in_progress', response = $2 WHERE id = $1 AND status = 'queued'"
_FAILED = "UPDATE gateway.background_responses SET failures = failures + 1 WHERE id = $1 AND lease_id = $2"
_HOLD = "SELECT FROM gateway.responses WHERE id = $1 FOR UPDATE"
_INPUT = "SELECT input FROM gateway.responses WHERE id = $1"
_FORGET = "DELETE FROM gateway.background_responses WHERE id = $1 AND lease_id = $2 RETURNING id"
_END = """
UPDATE gateway.responses SET status = $2, response = $3, size_bytes = length(input) + length($3::bytea) WHERE id = $1
"""


class ClaimedResponse(msgspec.Struct, frozen=True):
    """A claimed response. response: its JSON, as it is now. failures: runs that failed by the platform's fault. left_s:
    seconds until its window ends."""

    owner: Caller
    key_hash: bytes
    conversation_id: str | None
    request: bytes
    response: bytes
    failures: int
    left_s: float


class FinishedResponse(msgspec.Struct, frozen=True):
    """The response as it ended. closed: the record of the run that made it; None: it failed."""

    response: bytes
    closed: Closed | None = None


async def by_status(connection: Connection) -> dict[str, int]:
    """Numbers of responses that have not finished."""
    return {row["status"]: row["responses"] for row in await connection.fetch(_BY_STATUS)}


async def begin(connection: Connection, held: Claim) -> ClaimedResponse:
    """It is in progress from now on. Raises LeaseLost."""
    row = await connection.fetchrow(_READ, *held.key, WINDOW_S)
    if row is None:
        raise LeaseLost
    response: bytes = row["response"]
    if row["status"] == "queued":
        response = with_fields(response, {"status": "in_progress"})
        await connection.execute(_BEGIN, held.id, response)
    return ClaimedResponse(
        owner=Caller(str(row["organization_id"]), str(row["project_id"]), str(row["key_id"])),
        key_hash=row["hash"] or b"",
        conversation_id=row["conversation_id"],
        request=row["request"],
        response=response,
        failures=row["failures"],
        left_s=row["left_s"],
    )


async def count_failure(connection: Connection, held: Claim) -> None:
    """A run failed, and may be repeated."""
    await connection.execute(_FAILED, *held.key)


async def end(
    connection: Connection, ledger: Ledger, held: Claim, found: ClaimedResponse, ended: FinishedResponse
) -> None:
    """Store the response, bill it, and let its conversation grow, together. Raises LeaseLost, and a RequestError for a
    conversation that cannot grow."""
    runs = [] if ended.closed is None else [ended.closed]
    await ensure_partitions_and_store(ledger, runs, lambda: _end(connection, ledger, held, found, ended))


async def _end(
    connection: Connection, ledger: Ledger, held: Claim, found: ClaimedResponse, ended: FinishedResponse
) -> None:
    async with connection.transaction():
        await connection.fetchrow(_HOLD, held.id)
        if await connection.fetchval(_FORGET, *held.key) is None:
            raise LeaseLost
        await connection.execute(_END, held.id, "failed" if ended.closed is None else None, ended.response)
        if ended.closed is not None:
            await ledger.insert_within(connection, [billing_record(ended.closed)], GATEWAY_ID)
            if found.conversation_id is not None:
                # read now: a long input of each running response would fill the worker's memory
                given: bytes = await connection.fetchval(_INPUT, held.id)
                items = [StoredItem(*item) for item in identified(given, ended.response)]
                await grow(connection, found.owner, Grown(found.conversation_id, items))
