"""That a release's candidate is asked nothing more, by the servers' own clocks."""

from __future__ import annotations

import asyncio
from datetime import datetime

from tests.deployment import Deployment

LEAVES_S = 5.0
"""Traffic is off a candidate within it, once there is a verdict."""
SERVED_AFTER = 20
"""Requests of customers that begin when no traffic may go to the candidate any more."""
GUARD_S = 420.0
BEGAN_AFTER = """
SELECT pool, count(*) AS requests FROM gateway.request_traces
 WHERE status = 200
   AND recorded_at - make_interval(secs => total_ms / 1000) > $1::timestamptz + make_interval(secs => $2::float8)
 GROUP BY pool
"""


async def require_left(running: Deployment, ended_at: datetime, pool: str) -> None:
    """Of customers' requests that began five seconds after a release had ended, all were answered by this pool.

    Returns once there were some. Customers must be asking meanwhile.
    """
    async with asyncio.timeout(GUARD_S), running.database() as connection:
        asked: dict[str, int] = {}
        while asked.get(pool, 0) < SERVED_AFTER:
            rows = await connection.fetch(BEGAN_AFTER, ended_at, LEAVES_S)
            asked = {each["pool"]: each["requests"] for each in rows}
            await asyncio.sleep(0.2)
    assert set(asked) == {pool}, f"others are still asked: {asked}"
