"""Compares requests that have ended and stores their samples, in batches and with a delay: no token waits for it.

Best effort, like the traces (gateway/serving/trace.py): requests over the limit, and the oldest samples while the
database is unavailable, are dropped and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import asyncpg
import msgspec

from contracts.generation import Caller
from gateway.observability.metrics import GatewayMetrics
from gateway.prefixes.config import PrefixesConfig
from gateway.prefixes.observer import Observed, PrefixObserver, PrefixSample
from gateway.prefixes.text_store import PrefixTexts
from gateway.wire.prepared import Prepared
from storage.write_behind import WriteBehind, WrittenBehind

MAX_ENDED = 2_000
MAX_ENDED_TOKENS = 8 << 20
"""Limit of the tokens of prompts that wait for comparison: their texts stay in memory until then."""
MAX_WAITING = 20_000
BATCH = 1_000
TURN_S = 0.001
"""Longest uninterrupted comparison of prompts; then the event loop serves clients."""
# One JSON text: asyncpg would check for every element of an array parameter whether it is an array itself.
INSERT = """
    INSERT INTO gateway.prefix_samples
        (request_id, organization_id, project_id, model, tier, endpoint, template, session_id, turn, prompt_tokens,
         reusable_tokens, differing_token, part, part_number, cause, blocks)
    SELECT request_id, organization_id, project_id, model, tier, endpoint, template, session_id, turn, prompt_tokens,
           reusable_tokens, differing_token, part, part_number, cause, blocks
      FROM json_populate_recordset(NULL::gateway.prefix_samples, $1::json)
        ON CONFLICT DO NOTHING
"""
_encode = msgspec.json.Encoder().encode


class PrefixSamples(WrittenBehind):
    """Two bounded queues in front of `gateway.prefix_samples`: requests to be compared, and samples to be written."""

    def __init__(
        self, pool: asyncpg.Pool, metrics: GatewayMetrics, observer: PrefixObserver, config: PrefixesConfig
    ) -> None:
        self._metrics = metrics
        self._observer = observer
        self._enabled = config.enabled
        self._ended: deque[Observed] = deque()
        self._ended_tokens = 0
        self._samples = WriteBehind(
            pool,
            _write,
            "prefix samples",
            most=MAX_WAITING,
            batch=BATCH,
            on_dropped=metrics.prefix_samples_dropped.inc,
        )
        self._texts = PrefixTexts(pool)
        super().__init__(config.flush_s, "prefix samples")

    def add(
        self, request_id: str, caller: Caller, endpoint: str, prepared: Prepared, *, texts_stored: bool = False
    ) -> None:
        """Queue a request that reached an engine for comparison. texts_stored: whether texts may be stored."""
        if not self._enabled:
            return
        if len(self._ended) >= MAX_ENDED or self._ended_tokens >= MAX_ENDED_TOKENS:
            self._metrics.prefix_samples_dropped.inc()
            return
        self._ended.append(Observed(request_id, caller, endpoint, prepared, time.monotonic(), texts_stored))
        self._ended_tokens += prepared.prompt_tokens

    async def flush(self) -> None:
        """Compare ended requests and write the queue. Raises no database error: the next call retries."""
        await self._compare()
        await self._samples.flush()
        if not self._samples:  # otherwise, the database is unavailable and would delay a stop again
            await self._texts.flush()

    async def _compare(self) -> None:
        until_s = time.perf_counter() + TURN_S
        while self._ended:
            request = self._ended.popleft()
            self._ended_tokens -= request.prepared.prompt_tokens
            sample, excerpt = self._observer.compare(request)
            self._samples.add(sample)
            if excerpt is not None:
                self._texts.add(sample, excerpt, request.at_s)
            if time.perf_counter() >= until_s:
                await asyncio.sleep(0)
                until_s = time.perf_counter() + TURN_S


async def _write(connection: asyncpg.Connection, rows: Sequence[PrefixSample]) -> None:
    await connection.execute(INSERT, _encode(rows).decode())
