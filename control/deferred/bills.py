"""The bill of a request that the worker ran for a key: the row is inserted in the transaction that stores its result,
so each result has exactly one. The run itself has a row of its own, which is not billed, unless its tenant ended it.
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
"""The attempt's number in the ledger row by which a stored result is billed."""


def billing_record(closed: Closed) -> Closed:
    """The row by which the tenant pays for this run. Without an engine: reconciliation counts the run's own row."""
    opened = msgspec.structs.replace(closed.opened, attempt=BILLED_ATTEMPT, purpose=None)
    return msgspec.structs.replace(closed, opened=opened, billed=True, replica_id=None, pool=None, driver=None)


async def ensure_partitions_and_store(
    ledger: Ledger, runs: Sequence[Closed], store: Callable[[], Awaitable[ResultT]]
) -> ResultT:
    """Call `store`, a transaction that bills these runs; again if the ledger had no partition for their day yet."""
    try:
        return await store()
    except asyncpg.CheckViolationError as error:
        if error.constraint_name is not None:
            raise
        await ledger.ensure_days(runs)
        return await store()
