"""Prefetches prompts: computes a file's next line while the replica that has the file is idle.

Each replica runs one warm-up at a time, and alone: the router grants it an idle replica or none. A warm-up gives way to
all other work of this gateway: to the file's next keystroke, which may differ from the predicted one, and to any
request on the same replica. The computed part stays in the engine's cache. A key gets no more prefetch than its
requests were billed for (`gateway.serving.warm_up_allowance`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from contracts.errors import Overloaded, RouterUnavailable, SlipstreamError
from contracts.prefix import BLOCK_TOKENS
from contracts.usage import Usage
from gateway.observability.file_metrics import FileMetrics
from gateway.serving.attempt import Attempt
from gateway.serving.background import IdleReplicaWork
from gateway.serving.file_history import shared_blocks
from gateway.serving.idle_timeout import IdleTimeouts, Wait
from gateway.serving.nobody import nobody
from gateway.serving.request import Arrival, InferenceRequest
from gateway.serving.warm_up_allowance import WarmUpAllowance
from gateway.wire.fill.next_line import next_line, worth_computing
from gateway.wire.prepared import Prepared

logger = logging.getLogger(__name__)

ENDPOINT = "warm_up"
"""Name of warm-ups in journals and ledger."""


class WarmUps(IdleReplicaWork[bytes]):
    """The prefetches of one gateway. compute: computes an attempt's prompt on an engine, with its journal records."""

    def __init__(
        self, compute: Callable[[Attempt], Awaitable[None]], idle_timeouts: IdleTimeouts, metrics: FileMetrics
    ) -> None:
        super().__init__()
        self._compute = compute
        self._idle_timeouts = idle_timeouts
        self._metrics = metrics
        self._allowance = WarmUpAllowance()

    def arrived(self, request: InferenceRequest) -> None:
        """End the warm-up of the request's file, which would delay the request or compute the same prompt."""
        if self._by_replica and request.prepared.file and request.purpose is None:
            self._give_way_of(request.prepared.file)

    def attempted(self, attempt: Attempt) -> None:
        """Credit a billed attempt to the warm-ups of its key."""
        if attempt.billed:
            self._allowance.paid(attempt.request.caller.key_id, attempt.usage)

    def answered(self, attempt: Attempt) -> None:
        """Compute the next line of the request's file on the engine that answered, if it is worth it."""
        request, engine = attempt.request, attempt.engine
        if engine is None or not worth_computing(request.prepared, request.target):
            return
        text = attempt.transcoder.text
        if text is None or engine.replica_id in self._by_replica:
            return
        work = self._run(request, text, engine.replica_id)
        self._begin(engine.replica_id, request.prepared.file, work, "warm-up")

    async def _run(self, served: InferenceRequest, text: str, replica_id: str) -> None:
        model, outcome = served.model, "failed"
        try:
            await self._compute_next_line(served, text, replica_id)
            outcome = "computed"
        except _Unpaid:
            outcome = "unpaid"
        except asyncio.CancelledError:
            outcome = "superseded"
        except (Overloaded, RouterUnavailable):
            outcome = "refused"
        except SlipstreamError as error:
            logger.info("warm-up after request %s: %s", served.request_id, error)
        except Exception:
            logger.exception("warm-up after request %s failed", served.request_id)
        finally:
            self._over(replica_id)
            self._metrics.warmed_up(model, outcome)

    async def _compute_next_line(self, served: InferenceRequest, text: str, replica_id: str) -> None:
        arrival = Arrival(served.wire_format, {})
        ahead = await next_line(served.prepared, text, arrival.request_id, served.target)
        request = InferenceRequest(arrival, served.key, served.target, ahead)
        request.endpoint = ENDPOINT
        wait = Wait()
        attempt = Attempt(request, nobody(arrival.request_id, wait), 0, idle_replica=replica_id)
        key_id, to_compute = served.caller.key_id, _to_compute(served.prepared, ahead)
        if not self._allowance.take(key_id, to_compute):
            raise _Unpaid
        self._attempts[replica_id] = attempt
        self._idle_timeouts.add(wait)
        try:
            await self._compute(attempt)
        finally:
            self._idle_timeouts.remove(wait)
            used = attempt.usage_for_limits if attempt.counts_in_limits else Usage()
            self._allowance.give_back(key_id, to_compute, used)


def _to_compute(served: Prepared, ahead: Prepared) -> int:
    """The prompt's tokens after those that the replica has just computed."""
    shared = 0
    if served.chain.kind == ahead.chain.kind == "tokens":
        shared = shared_blocks(served.chain.hashes, ahead.chain.hashes) * BLOCK_TOKENS
    return max(ahead.prompt_tokens - shared, 1)


class _Unpaid(Exception):
    """The key's billed requests do not cover the prefetch."""
