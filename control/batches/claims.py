"""A worker's lease of a batch, and the steps with a leased batch: transactions that check the lease."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from contracts.generation import Caller
from control.batches.line import LineError
from control.batches.machine import UNFINISHED, BatchStatus, Standing, end_of
from control.deferred.bills import billing_record, ensure_partitions_and_store
from control.deferred.leases import Claim, Connection, LeaseLost, Leases
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger

GATEWAY_ID = "batches"
"""The worker's name in the ledger rows that bill results."""
CONTENTS_BYTES = 8_000_000
"""Size at which one read of results ends: the vectors of a single line may have 10 MB."""

_STATUSES = ", ".join(f"'{each}'" for each in UNFINISHED)
LEASES = Leases("gateway.batches", f"status IN ({_STATUSES})", "status")
claim, renew, release, has_waiting = LEASES.claim, LEASES.renew, LEASES.release, LEASES.has_waiting
_READ = "SELECT *, now() AS now FROM gateway.batches WHERE id = $1 AND lease_id = $2"
_DONE = "SELECT line FROM gateway.batch_results WHERE batch_id = $1"
_BEGIN = f"""
UPDATE gateway.batches SET status = '{BatchStatus.IN_PROGRESS}', in_progress_at = now(), total = $3, model = $4
 WHERE id = $1 AND lease_id = $2 AND status = '{BatchStatus.VALIDATING}'
"""  # noqa: S608
_FAIL = f"""
UPDATE gateway.batches SET status = '{BatchStatus.FAILED}', failed_at = now(), errors = $3, lease_id = NULL,
       lease_until = NULL
 WHERE id = $1 AND lease_id = $2 AND status = '{BatchStatus.VALIDATING}'
"""  # noqa: S608
_LOSE_REST = """
UPDATE gateway.batches SET total = completed + failed, errors = $3 WHERE id = $1 AND lease_id = $2
"""
_FINALIZE = f"""
UPDATE gateway.batches SET status = '{BatchStatus.FINALIZING}', finalizing_at = now(),
       expired_at = CASE WHEN completed + failed < total THEN now() END
 WHERE id = $1 AND lease_id = $2 AND status = '{BatchStatus.IN_PROGRESS}'
"""  # noqa: S608
_HOLD = "SELECT status FROM gateway.batches WHERE id = $1 AND lease_id = $2 FOR UPDATE"
_STORE = """
INSERT INTO gateway.batch_results (batch_id, line, ok, content)
SELECT $1, line, ok, content FROM unnest($2::integer[], $3::boolean[], $4::bytea[]) AS found (line, ok, content)
    ON CONFLICT DO NOTHING RETURNING line, ok
"""
_COUNT = """
UPDATE gateway.batches SET completed = completed + $2, failed = failed + $3, prompt_tokens = prompt_tokens + $4,
       cached_tokens = cached_tokens + $5, completion_tokens = completion_tokens + $6,
       reasoning_tokens = reasoning_tokens + $7
 WHERE id = $1
"""
_END = """
UPDATE gateway.batches SET status = $3, {moment} = coalesce({moment}, now()), lease_id = NULL, lease_until = NULL
 WHERE id = $1 AND lease_id = $2
"""
_FORGET_RESULTS = "DELETE FROM gateway.batch_results WHERE batch_id = $1"
# The inner limit comes before the sum, which would otherwise sort all further results of the batch at each read.
_CONTENTS = """
SELECT line, content
  FROM (SELECT line, content, sum(octet_length(content)) OVER (ORDER BY line) - octet_length(content) AS before_bytes
          FROM (SELECT line, content FROM gateway.batch_results
                 WHERE batch_id = $1 AND ok = $2 AND line > $3 ORDER BY line LIMIT $4) AS following) AS sized
 WHERE before_bytes < $5 ORDER BY line
"""
_KEY_HASH = "SELECT hash FROM gateway.api_keys WHERE id = $1"
_BY_STATUS = f"""
SELECT status, count(*)::integer AS batches FROM gateway.batches WHERE status IN ({_STATUSES}) GROUP BY status
"""  # noqa: S608


class ResultFile(StrEnum):
    """The file that a result goes to."""

    OUTPUT = "output"
    ERROR = "error"


class ClaimedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed batch, as it was when it was read."""

    standing: Standing
    owner: Caller
    endpoint: str
    input_file_id: str
    output_file_id: str
    error_file_id: str
    output_seconds: int
    expires_at: datetime
    left_s: float
    """Seconds until its window ends."""


class Result(msgspec.Struct, frozen=True):
    """The result of a line. content: a line of the output or error file. closed: the record of the run that produced
    it; None without a run, or if the run is not billed."""

    line: int
    ok: bool
    content: bytes
    closed: Closed | None = None


async def read(connection: Connection, claim: Claim) -> ClaimedBatch:
    """Read the batch's current state. Raises LeaseLost."""
    row = await connection.fetchrow(_READ, *claim.key)
    if row is None:
        raise LeaseLost
    left_s = (row["expires_at"] - row["now"]).total_seconds()
    status = BatchStatus(row["status"])
    may_expire = status in (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS)
    expired = left_s <= 0 if may_expire else row["expired_at"] is not None
    return ClaimedBatch(
        standing=Standing(status, row["total"], row["completed"] + row["failed"], expired),
        owner=Caller(str(row["organization_id"]), str(row["project_id"]), str(row["key_id"])),
        endpoint=row["endpoint"],
        input_file_id=row["input_file_id"],
        output_file_id=row["output_file_id"],
        error_file_id=row["error_file_id"],
        output_seconds=row["output_seconds"],
        expires_at=row["expires_at"],
        left_s=left_s,
    )


async def key_hash(connection: Connection, owner: Caller) -> bytes:
    """The current hash of the key that created a batch; empty if the key no longer exists."""
    found: bytes | None = await connection.fetchval(_KEY_HASH, owner.key_id)
    return found or b""


async def done(connection: Connection, claim: Claim) -> set[int]:
    """Numbers of lines that have a result."""
    return {row["line"] for row in await connection.fetch(_DONE, claim.id)}


async def begin(connection: Connection, claim: Claim, total: int, model: str | None) -> None:
    """Begin to run a batch whose file is valid."""
    await connection.execute(_BEGIN, *claim.key, total, model)


async def fail(connection: Connection, claim: Claim, errors: Sequence[LineError]) -> None:
    """End a batch whose file is invalid."""
    await connection.execute(_FAIL, *claim.key, _json(errors))


async def lose_rest(connection: Connection, claim: Claim, errors: Sequence[LineError]) -> None:
    """Give up the lines without a result, because the file is missing or damaged."""
    await connection.execute(_LOSE_REST, *claim.key, _json(errors))


def _json(errors: Sequence[LineError]) -> str:
    """The errors as JSON, without NUL characters: PostgreSQL refuses even escaped ones."""
    return msgspec.json.encode(errors).decode().replace("\\u0000", "\\ufffd")


async def finalize(connection: Connection, claim: Claim) -> None:
    """Begin to finalize the batch, which runs no further line."""
    await connection.execute(_FINALIZE, *claim.key)


async def store(
    connection: Connection, ledger: Ledger, claim: Claim, statuses: Iterable[BatchStatus], results: Sequence[Result]
) -> BatchStatus:
    """Store, bill and count results in one transaction. A line that has a result keeps it. Returns the status.

    statuses: those in which the batch may get these results. Raises LeaseLost, also in any other status.
    """
    runs = [each.closed for each in results if each.closed is not None]
    return await ensure_partitions_and_store(ledger, runs, lambda: _store(connection, ledger, claim, statuses, results))


async def _store(
    connection: Connection, ledger: Ledger, claim: Claim, statuses: Iterable[BatchStatus], results: Sequence[Result]
) -> BatchStatus:
    async with connection.transaction():
        status = await connection.fetchval(_HOLD, *claim.key)
        if status not in statuses:
            raise LeaseLost
        columns = ([each.line for each in results], [each.ok for each in results], [each.content for each in results])
        new = {row["line"]: row["ok"] for row in await connection.fetch(_STORE, claim.id, *columns)}
        closed = [each.closed for each in results if each.line in new and each.closed is not None]
        if closed:
            await ledger.insert_within(connection, [billing_record(each) for each in closed], GATEWAY_ID)
        completed = sum(new.values())
        names = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
        tokens = [sum(getattr(each.usage, name) for each in closed) for name in names]
        await connection.execute(_COUNT, claim.id, completed, len(new) - completed, *tokens)
    return BatchStatus(status)


async def contents(
    connection: Connection, batch_id: str, file: ResultFile, after: int, limit: int
) -> list[tuple[int, bytes]]:
    """Results of one file in the order of their lines, after line `after`: at most `limit`, and no more once they have
    `CONTENTS_BYTES`."""
    return [
        (row["line"], row["content"])
        for row in await connection.fetch(_CONTENTS, batch_id, file is ResultFile.OUTPUT, after, limit, CONTENTS_BYTES)
    ]


async def end(connection: Connection, claim: Claim, standing: Standing) -> None:
    """End the batch after both files are written. Raises LeaseLost."""
    status = end_of(standing)
    async with connection.transaction():
        if await connection.fetchval(_HOLD, *claim.key) != standing.status:
            raise LeaseLost
        await connection.execute(_END.format(moment=f"{status}_at"), *claim.key, status.value)
        await connection.execute(_FORGET_RESULTS, claim.id)


async def by_status(connection: Connection) -> dict[str, int]:
    """Numbers of unfinished batches by status."""
    return {row["status"]: row["batches"] for row in await connection.fetch(_BY_STATUS)}
