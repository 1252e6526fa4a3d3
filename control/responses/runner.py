"""Runs background responses: the worker sends each response's request to a gateway, with a token for its key.

The process may be killed at any time: the response is stored with its bill in one transaction. A response whose answer
was lost runs again, a few times; the lost run is not billed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any

import msgspec

from contracts.errors import RequestError
from control.deferred.gateway_client import (
    FAILED,
    LOST,
    MAX_TRIES,
    TOKEN_REFUSED,
    Answer,
    GatewayUnreachable,
    NoAnswer,
    RetryLater,
    TokenRefused,
    ask,
    refusal,
)
from control.deferred.leases import Claim, LeaseLost
from control.deferred.runner import LeasedRowWorker
from control.responses import transitions
from control.responses.metrics import ResponseMetrics
from control.responses.recording import Recorder
from control.responses.transitions import ClaimedResponse, FinishedResponse
from gateway.auth.delegation import BACKGROUND_PREFIX, delegated
from gateway.metering.journal.records import Closed
from gateway.wire.responses.openapi import RESPONSES_PATH
from gateway.wire.responses.stored import with_fields
from storage.engine import FAILURES

MAX = 64
"""Responses that a worker runs at once."""
SWEEP_S = 60.0
"""Interval between deletions of old events."""
PAUSE_S = 1.0
"""Pause after a refusal without a `Retry-After`, and after a failure."""
NO_ANSWER = "%s: %s does not answer for %s (%s), which runs again"
CODES = {400: "invalid_prompt", 404: "invalid_prompt", 413: "invalid_prompt", 429: "rate_limit_exceeded"}
"""Codes that typed clients know, by the status of a refusal; others are `server_error`."""

_log = logging.getLogger(__name__)


class _Made(msgspec.Struct):
    created_at: int


_decode_made = msgspec.json.Decoder(_Made).decode


class ResponseRunner(LeasedRowWorker):
    """One per worker process. metrics: None to show none. The other parameters are those of `LeasedRowWorker`."""

    name, leases = "responses", transitions.LEASES
    at_once, most_each, connections, requests = MAX, MAX // 2, 8, MAX

    def __init__(
        self,
        database_url: str,
        url: str,
        pepper: Callable[[], bytes],
        metrics: ResponseMetrics | None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(database_url, url, pepper, trusted)
        self._metrics = metrics
        self._sweep_s = float("-inf")
        self._warned = False
        """Whether the gateway's failure, which all responses share, is in the log."""

    async def _on_idle(self) -> None:
        if self._metrics is not None:
            self._metrics.set_counts(await self._once(transitions.by_status))
        if (now_s := time.monotonic()) >= self._sweep_s:
            await self._once(transitions.forget_events)
            self._sweep_s = now_s + SWEEP_S

    async def _steps(self, claim: Claim, ended: asyncio.Event) -> None:
        found = await self._do(transitions.begin, claim)
        if found.left_s <= 0:
            reason = (
                f"The response could not be generated within {transitions.WINDOW_S // 3600} hours. Create it again."
            )
            await self._fail(claim, found, _error("server_error", reason, "response_expired"))
            return
        if found.failures >= MAX_TRIES:
            await self._fail(claim, found, _error("server_error", LOST, "response_lost"))
            return
        found = await self._do(transitions.start, claim, found)
        try:
            await self._run(claim, found, ended)
        except asyncio.CancelledError:  # the worker stops, or has lost the lease and changes no row
            with contextlib.suppress(*FAILURES):
                await self._once(transitions.put_back, claim)
            raise

    async def _renew(self, claim: Claim, ended: asyncio.Event) -> None:
        """Renew the lease, forever. Raises LeaseLost if the lease is lost before the run is complete (`ended`)."""
        try:
            await super()._renew(claim, ended)
        except LeaseLost:
            if not ended.is_set():
                raise
            # the steps must not be cancelled now: `transitions.end` decides whether the run is billed
            await asyncio.Event().wait()

    async def _run(self, claim: Claim, found: ClaimedResponse, ended: asyncio.Event) -> None:
        token = delegated(found.key_hash, self._pepper, time.time(), BACKGROUND_PREFIX)
        headers = {"x-client-request-id": claim.id}
        created_at = _decode_made(found.response).created_at
        recorder = None
        if found.next_event is not None:
            store = functools.partial(self._do, transitions.record, claim)
            recorder = Recorder(store, found.next_event, created_at, ended)
        read_stream = None if recorder is None else recorder.read
        try:
            answer = await ask(self._session, self._url + RESPONSES_PATH, token, found.request, headers, read_stream)
            if answer.status != 200:
                await self._refused(claim, found, answer)
                return
        except RetryLater as full:
            await self._do(transitions.put_back, claim, full.retry_after_s or PAUSE_S)
            return
        except (GatewayUnreachable, TokenRefused) as trouble:
            if not self._warned:
                self._warned = True
                text = TOKEN_REFUSED if isinstance(trouble, TokenRefused) else NO_ANSWER
                _log.warning(text, self.name, self._url, claim.id, trouble)
            await self._do(
                self.leases.release if isinstance(trouble, NoAnswer) else transitions.put_back, claim, PAUSE_S
            )
            return
        self._warned = False
        response = with_fields(answer.body, {"created_at": created_at})
        complete = recorder is None or not recorder.full
        finished = FinishedResponse(response, answer.closed, complete)
        try:
            await self._end(claim, found, finished)
        except RequestError as error:  # the conversation was deleted, or is full; a stream's client has the output
            failure = _error("invalid_prompt", error.message, error.code, error.param)
            await self._fail(claim, found, failure, None if recorder is None else answer.closed, complete)

    async def _refused(self, claim: Claim, found: ClaimedResponse, answer: Answer) -> None:
        """End the response, or run it again after a failure that may be the platform's. Raises GatewayUnreachable."""
        error = refusal(answer.body)
        if answer.status in FAILED and found.failures < MAX_TRIES:
            await self._do(self.leases.release, claim, PAUSE_S)
            return
        code = CODES.get(answer.status, "server_error")
        await self._fail(claim, found, _error(code, error.message, error.code, error.param))

    async def _fail(
        self,
        claim: Claim,
        found: ClaimedResponse,
        error: dict[str, Any],
        closed: Closed | None = None,
        complete: bool = True,
    ) -> None:
        response = with_fields(found.response, {"status": "failed", "error": error})
        await self._end(claim, found, FinishedResponse(response, closed, complete, failed=True))

    async def _end(self, claim: Claim, found: ClaimedResponse, finished: FinishedResponse) -> None:
        """End the response. If the worker stops meanwhile, try once more to store and bill a complete run: no worker
        repeats it if its client has ended the response. Raises LeaseLost and a RequestError."""
        try:
            await self._do(transitions.end, self._ledger, claim, found, finished)
        except asyncio.CancelledError:
            if finished.closed is not None:
                with contextlib.suppress(LeaseLost, RequestError, *FAILURES):
                    await self._once(transitions.end, self._ledger, claim, found, finished)
            raise


def _error(code: str, message: str, kind: str | None, param: str | None = None) -> dict[str, Any]:
    """The error of a failed response. kind: this deployment's code."""
    return {"code": code, "message": message, "param": param, "type": kind}
