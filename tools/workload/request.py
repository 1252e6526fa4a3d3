"""One past request, read from the ledger and its prefix sample."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.dated_request_id import arrived_at_s, first_at

READ_AT_ONCE = 2_000
# The client received the answer of a request's last attempt. An answer that no client received is complete and not
# billed, or not complete. Requests with a purpose of the deployment's own, such as evals, are not customers' traffic.
REQUESTS = """
SELECT DISTINCT ON (event.request_id)
       event.request_id, event.organization_id::text AS organization_id, event.tier, event.model,
       extract(epoch FROM event.closed_at)::double precision AS ended_s,
       event.prompt_tokens AS told_tokens, event.completion_tokens AS output_tokens, event.cached_tokens,
       sample.prompt_tokens AS counted_tokens, sample.reusable_tokens, sample.session_id, sample.turn, sample.blocks
  FROM gateway.usage_events event LEFT JOIN gateway.prefix_samples sample USING (request_id)
 WHERE event.request_id >= $1 AND event.request_id < $2
   AND ($3::uuid IS NULL OR event.organization_id = $3) AND ($4::text IS NULL OR event.tier = $4)
   AND NOT (event.finish = 'complete' AND NOT event.billed) AND event.endpoint NOT IN ('warm_up', 'shadow')
   AND event.purpose IS NULL
 ORDER BY event.request_id, event.attempt DESC
"""


class Request(msgspec.Struct, frozen=True):
    """Times are epoch seconds."""

    request_id: str
    organization_id: str
    tier: str
    model: str
    at_s: float
    ended_s: float
    prompt_tokens: int
    """The engine's count, or else the gateway's; 0 if no engine received the request."""
    output_tokens: int
    cached_tokens: int = 0
    reusable_tokens: int | None = None
    """None, like the session, if the prompt was not sampled."""
    session_id: str | None = None
    turn: int = 1
    blocks: tuple[int, ...] = ()
    """Keyed digests of the prompt's prefixes, every 512 tokens."""


async def read(
    connection: asyncpg.Connection[Any],
    since: datetime,
    until: datetime,
    organization_id: UUID | None = None,
    tier: str | None = None,
) -> AsyncIterator[Request]:
    """All requests of customers between two times, by arrival. The connection stays in one transaction meanwhile."""
    bounds = first_at(since.timestamp()), first_at(until.timestamp())
    async with connection.transaction(readonly=True):
        async for row in connection.cursor(REQUESTS, *bounds, organization_id, tier, prefetch=READ_AT_ONCE):
            yield request_of(row)


def request_of(row: Any) -> Request:
    """One row of `REQUESTS`."""
    at_s = arrived_at_s(row["request_id"])
    assert at_s is not None  # the bounds are ids with a time in them
    sampled = row["session_id"] is not None
    return Request(
        row["request_id"],
        row["organization_id"],
        row["tier"],
        row["model"],
        at_s,
        row["ended_s"],
        row["told_tokens"] or row["counted_tokens"] or 0,
        row["output_tokens"],
        row["cached_tokens"],
        row["reusable_tokens"],
        row["session_id"],
        row["turn"] if sampled else 1,
        tuple(row["blocks"]) if sampled else (),
    )
