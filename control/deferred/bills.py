"""Bills requests that the worker runs for a key. The transaction that stores a result inserts its bill, so each result
has exactly one. The run itself has another row, which is not billed unless its tenant ended the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg
import msgspec

from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger

ResultT = TypeVar("ResultT")
BILLED_ATTEMPT = 1_000
"""The attempt's number in a ledger row that bills a stored result."""


def billing_record(closed: Closed) -> Closed:
    """The row that bills this run. It names no engine, because reconciliation counts the run's own row."""
    opened = msgspec.structs.replace(closed.opened, attempt=BILLED_ATTEMPT, purpose=None)
    return msgspec.structs.replace(closed, opened=opened, billed=True, replica_id=None, pool=None, driver=None)


async def ensure_partitions_and_store(
    ledger: Ledger, runs: Sequence[Closed], store: Callable[[], Awaitable[ResultT]]
) -> ResultT:
    """Call `store`, a transaction that bills these runs; if the ledger has no partition for their day yet, create it
    and call `store` again. Raises ConnectionError if its connection does not know the partition, for another try."""
    try:
        return await ledger.with_days(runs, store)
    except asyncpg.CheckViolationError as error:
        if error.constraint_name is not None:
            raise
        raise ConnectionError("the connection does not know the ledger's new day") from None
