"""The worker's steps with a background response. Each step checks the worker's lease.

    queued ──> in_progress ──> completed | incomplete | failed
       └───────────┴──> cancelled, by the gateway

The transaction that ends and bills the response deletes its row of `background_responses`. Like the gateway, each step
locks the response before that row.
"""

from __future__ import annotations

import msgspec

from contracts.generation import Caller
from control.deferred.bills import billing_record, ensure_partitions_and_store
from control.deferred.leases import Claim, Connection, LeaseLost, Leases
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger
from gateway.responses.background import FIRST_EVENTS, ended_by_client
from gateway.responses.conversations import Grown, StoredItem, grow
from gateway.wire.responses.events import event_of
from gateway.wire.responses.stored import identified, with_fields

WINDOW_S = 86_400
"""Time after which a response that could not be run fails."""
EVENTS_S = 600
"""Time for which events are kept after the last one."""
GATEWAY_ID = "responses"
"""The worker's name in the ledger rows that bill responses."""
ALONE_AFTER = 2
"""Failed runs after which the response may be the cause: a worker has one such response at a time."""
LEASES = Leases("gateway.background_responses", "true", "true", f"failures >= {ALONE_AFTER}")

_READ = """
SELECT response.organization_id, response.project_id, work.key_id, api_keys.hash, conversation_id, request, failures,
       next_event, response, status,
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
# The worker or the gateway may be killed at any time: a run counts as failed until it ends in another way. Its events
# leave a gap after those of an earlier run, which shows that run's clients that it was repeated.
_START = f"""
UPDATE gateway.background_responses SET failures = failures + 1, next_event = greatest(next_event, (
       SELECT max(next) + 1 FROM gateway.response_events WHERE response_id = $1 AND next > {len(FIRST_EVENTS)}))
 WHERE id = $1 AND lease_id = $2 RETURNING failures, next_event
"""  # noqa: S608
_DELETE_EVENTS = "DELETE FROM gateway.response_events WHERE response_id = $1"
_PUT_BACK = """
UPDATE gateway.background_responses SET failures = greatest(failures - 1, 0), lease_id = NULL,
       lease_until = now() + make_interval(secs => $3)
 WHERE id = $1 AND lease_id = $2
"""
_RECORD = """
INSERT INTO gateway.response_events (response_id, first, next, events)
SELECT response.id, $3, $4, $5
  FROM gateway.responses AS response JOIN gateway.background_responses AS work USING (id)
 WHERE work.id = $1 AND work.lease_id = $2 FOR KEY SHARE OF response FOR SHARE OF work
    ON CONFLICT (response_id, first) DO UPDATE SET next = excluded.next, events = excluded.events RETURNING first
"""
_NEXT = "SELECT max(next) FROM gateway.response_events WHERE response_id = $1"
_LAST = "INSERT INTO gateway.response_events (response_id, first, next, events) VALUES ($1, $2, $3, $4)"
_SWEEP = """
DELETE FROM gateway.response_events WHERE response_id IN (
    SELECT response_id FROM gateway.response_events AS each
     WHERE NOT EXISTS (SELECT FROM gateway.background_responses WHERE id = response_id)
     GROUP BY response_id HAVING max(recorded_at) < now() - make_interval(secs => $1))
"""
_HOLD = "SELECT FROM gateway.responses WHERE id = $1 FOR UPDATE"
_INPUT = "SELECT input FROM gateway.responses WHERE id = $1"
_FORGET = "DELETE FROM gateway.background_responses WHERE id = $1 AND lease_id = $2 RETURNING id"
_END = """
UPDATE gateway.responses SET status = $2, response = $3, size_bytes = length(input) + length($3::bytea) WHERE id = $1
"""


class _Status(msgspec.Struct):
    status: str


_decode_status = msgspec.json.Decoder(_Status).decode


class ClaimedResponse(msgspec.Struct, frozen=True):
    """A claimed response. response: its current JSON. failures: runs that failed through the platform's fault,
    including the current one. left_s: seconds until its window ends. next_event: number of the run's first event; None
    if it is not streamed."""

    owner: Caller
    key_hash: bytes
    conversation_id: str | None
    request: bytes
    response: bytes
    failures: int
    left_s: float
    next_event: int | None


class FinishedResponse(msgspec.Struct, frozen=True):
    """A response that has ended. closed: the record of a complete run, which is billed; None without one. complete:
    whether all events of its run are stored. failed: whether it has no output, even after a complete run."""

    response: bytes
    closed: Closed | None = None
    complete: bool = True
    failed: bool = False


async def by_status(connection: Connection) -> dict[str, int]:
    """Numbers of unfinished responses by status."""
    return {row["status"]: row["responses"] for row in await connection.fetch(_BY_STATUS)}


async def begin(connection: Connection, claim: Claim) -> ClaimedResponse:
    """Mark the response as in progress. Raises LeaseLost."""
    row = await connection.fetchrow(_READ, *claim.key, WINDOW_S)
    if row is None:
        raise LeaseLost
    response: bytes = row["response"]
    if row["status"] == "queued":
        response = with_fields(response, {"status": "in_progress"})
        await connection.execute(_BEGIN, claim.id, response)
    return ClaimedResponse(
        owner=Caller(str(row["organization_id"]), str(row["project_id"]), str(row["key_id"])),
        key_hash=row["hash"] or b"",
        conversation_id=row["conversation_id"],
        request=row["request"],
        response=response,
        failures=row["failures"],
        left_s=row["left_s"],
        next_event=row["next_event"],
    )


async def start(connection: Connection, claim: Claim, found: ClaimedResponse) -> ClaimedResponse:
    """Begin a run, and delete the events of an earlier one. Raises LeaseLost."""
    async with connection.transaction():
        await connection.fetchrow(_HOLD, claim.id)
        row = await connection.fetchrow(_START, *claim.key)
        if row is None:
            raise LeaseLost
        if row["next_event"] is not None and row["next_event"] > len(FIRST_EVENTS):
            await connection.execute(_DELETE_EVENTS, claim.id)
    return msgspec.structs.replace(found, failures=row["failures"], next_event=row["next_event"])


async def put_back(connection: Connection, claim: Claim, pause_s: float = 0.0) -> None:
    """Release the response after a run that did not begin, or that its worker stopped, and do not count that run."""
    await connection.execute(_PUT_BACK, *claim.key, pause_s)


async def record(connection: Connection, claim: Claim, first: int, following: int, events: bytes) -> None:
    """Store events of a run. first, following: the number of the first, and the number after the last. Raises
    LeaseLost."""
    if await connection.fetchval(_RECORD, *claim.key, first, following, events) is None:
        raise LeaseLost


async def forget_events(connection: Connection) -> None:
    """Delete the events of responses that finished some time ago."""
    await connection.execute(_SWEEP, EVENTS_S)


async def end(
    connection: Connection, ledger: Ledger, claim: Claim, found: ClaimedResponse, ended: FinishedResponse
) -> None:
    """Store and bill the response and extend its conversation, in one transaction. A streamed response that a client
    has ended is only billed. Raises LeaseLost, and a RequestError if the conversation cannot grow."""
    runs = [] if ended.closed is None else [ended.closed]
    await ensure_partitions_and_store(ledger, runs, lambda: _end(connection, ledger, claim, found, ended))


async def _end(
    connection: Connection, ledger: Ledger, claim: Claim, found: ClaimedResponse, ended: FinishedResponse
) -> None:
    async with connection.transaction():
        await connection.fetchrow(_HOLD, claim.id)
        if await connection.fetchval(_FORGET, *claim.key) is None:
            if ended.closed is None or found.next_event is None:
                raise LeaseLost
            # a client may also end what another worker has run and billed
            if not claim.surely_leased() or not await ended_by_client(connection, found.owner, claim.id):
                raise LeaseLost
            # the client that cancelled or deleted it has received its events
            await ledger.insert_within(connection, [billing_record(ended.closed)], GATEWAY_ID)
            return
        await connection.execute(_END, claim.id, "failed" if ended.failed else None, ended.response)
        if found.next_event is not None:
            number = await connection.fetchval(_NEXT, claim.id) or found.next_event
            number += not ended.complete  # a gap shows clients that events are missing
            kind = f"response.{_decode_status(ended.response).status}"
            event = event_of(kind, number, {"response": msgspec.Raw(ended.response)})
            await connection.execute(_LAST, claim.id, number, number + 1, event)
        if ended.closed is not None:
            await ledger.insert_within(connection, [billing_record(ended.closed)], GATEWAY_ID)
            if found.conversation_id is not None and not ended.failed:
                # read only now: long inputs of all running responses would fill the worker's memory
                own_input: bytes = await connection.fetchval(_INPUT, claim.id)
                items = [StoredItem(*item) for item in identified(own_input, ended.response)]
                await grow(connection, found.owner, Grown(found.conversation_id, items))
