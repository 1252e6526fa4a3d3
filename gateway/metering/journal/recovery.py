"""Closes every attempt that a crash left open, before the gateway admits a request.

- An attempt that was never placed is exact, without tokens, and its finish is not_placed.
- A placed attempt that its engine knows is exact, with the engine's count, and its finish is gateway_crash.
- Any other attempt is unknown, without tokens, and its finish is gateway_crash. A metric counts it.

The ends go through the journal and the shipper like all others. An attempt that ended in a gateway's crash is recorded
with its tokens, but never billed, because its client got no proper end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Protocol

from contracts.errors import SlipstreamError
from contracts.usage import Finish, Outcome, Usage
from gateway.metering.config import MeteringConfig
from gateway.metering.journal.journal import Journal
from gateway.metering.journal.records import Closed, Placed
from gateway.metering.journal.replay import LeftOpen
from gateway.metering.metrics import MeteringMetrics

logger = logging.getLogger(__name__)

_AT_ONCE = 32
_PAUSE_S = 0.25


class AskEngine(Protocol):
    """Requests one attempt's usage from an engine; `engine_usage.EngineUsage` is the real one."""

    async def __call__(self, url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
        """The final usage; None if the engine does not know the attempt or its dialect has no such query.

        Raises SlipstreamError, OSError or TimeoutError if a retry may succeed: it is unreachable, or still runs.
        """
        ...


class Recovery:
    """Closes the attempts that an earlier run of a journal left open."""

    def __init__(self, journal: Journal, ask: AskEngine, config: MeteringConfig, metrics: MeteringMetrics) -> None:
        self._journal = journal
        self._ask = ask
        self._config = config
        self._metrics = metrics

    async def resolve(self) -> Counter[Outcome]:
        """Close all attempts left open durably. Returns their number by outcome.

        Takes at most about `resolve_timeout_s`, however many engines do not answer. Raises JournalUnavailable.
        """
        deadline_s = time.monotonic() + self._config.resolve_timeout_s
        permits = asyncio.Semaphore(_AT_ONCE)
        outcomes = await asyncio.gather(
            *(self._resolve_one(left, deadline_s, permits) for left in self._journal.left_open)
        )
        self._journal.left_open.clear()
        counts = Counter(outcomes)
        if counts:
            logger.warning(
                "journal %s: a crash had left %d attempts open, now closed: %s",
                self._journal.instance,
                counts.total(),
                ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items()),
            )
        return counts

    async def _resolve_one(self, left: LeftOpen, deadline_s: float, permits: asyncio.Semaphore) -> Outcome:
        if left.placed is None:
            usage: Usage | None = Usage()
            finish = Finish.NOT_PLACED
        else:
            async with permits:
                usage = await self._usage(left.placed, deadline_s)
            finish = Finish.GATEWAY_CRASH
        outcome = Outcome.UNKNOWN if usage is None else Outcome.EXACT
        await self._journal.closed(
            Closed(
                opened=left.opened,
                outcome=outcome,
                finish=finish,
                usage=usage or Usage(),
                status=0,
                closed_at=time.time(),
                replica_id=left.placed.replica_id if left.placed is not None else None,
                pool=(left.placed.pool or None) if left.placed is not None else None,
                driver=left.placed.driver if left.placed is not None else None,
            )
        )
        self._metrics.recovered.labels(outcome.value).inc()
        return outcome

    async def _usage(self, placed: Placed, deadline_s: float) -> Usage | None:
        """Query the engine until it answers or the time is up."""
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(self._config.ask_timeout_s, left_s)):
                    return await self._ask(placed.url, placed.driver, placed.request_id, placed.attempt)
            except (SlipstreamError, OSError, TimeoutError) as error:
                reason: object = error
            except Exception:
                logger.exception("asking %s for the usage of %s failed", placed.url, placed.request_id)
                return None
            logger.info("engine %s does not report the usage of %s yet: %s", placed.url, placed.request_id, reason)
            await asyncio.sleep(min(_PAUSE_S, max(0.0, deadline_s - time.monotonic())))
        return None
