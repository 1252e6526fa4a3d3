"""What one attempt's journal records will say, filled in while it runs."""

from __future__ import annotations

import time

import msgspec

from contracts.errors import EngineFailed, EngineTimeout, Overloaded, RequestError, SlipstreamError
from contracts.lease import Engine
from contracts.usage import Finish, Outcome, Usage
from gateway.metering.journal.records import Closed, Opened, Placed, engine_request_id
from gateway.serving.request import InferenceRequest


class AttemptRecord:
    """The state of an attempt that its `opened`, `placed` and `closed` records are made from.

    Until something better is known an attempt was never placed and used nothing, exactly.
    """

    def __init__(self, call: InferenceRequest, attempt: int) -> None:
        self._call = call
        self.attempt = attempt
        self.engine_request_id = engine_request_id(call.request_id, attempt)
        generation = call.generation
        self.opened = Opened(
            call.request_id,
            attempt,
            call.key.caller.organization_id,
            call.key.caller.project_id,
            call.key.caller.key_id,
            generation.model,
            generation.tier,
            call.endpoint,
            generation.stream,
            generation.choices * generation.sampling.max_tokens,
            call.prepared.prompt_tokens,
            time.time(),
        )
        self.engine: Engine | None = None
        self.granted_s = 0.0
        """When the lease was granted, on the request's clock."""
        self.sent = False
        """The engine may have the request."""
        self.turned_away = False
        """It answered with an error instead of a stream."""
        self.reached = False
        """The engine's first event has come."""
        self.ended = False
        """What was used has been entered."""
        self._told = False
        """By the engine, and it is all."""
        self._counted_by_us = False
        self.finish = Finish.NOT_PLACED
        self.outcome = Outcome.EXACT
        self.usage = Usage()
        self.error_code: str | None = None
        self.status = 499
        """What the client was given; 499 says that it left before."""
        self._error: SlipstreamError | None = None

    @property
    def engine_fault(self) -> bool:
        """The engine failed, as opposed to refusing what cannot be served."""
        return isinstance(self._error, EngineFailed | EngineTimeout)

    @property
    def taken(self) -> bool:
        """An engine had it, whatever came of that: it counts in the limits. One that is full (429, 503) had not."""
        return self.sent and not (self.turned_away and isinstance(self._error, Overloaded))

    @property
    def billed(self) -> bool:
        """Whether this attempt is the one the customer pays for.

        What the customer ended, or the request itself, is paid for as far as the engine got, its prompt included. What
        the engine broke off is paid for as far as it was sent on: a whole answer reached nobody.
        """
        if self.finish is Finish.COMPLETE:
            return True
        if self.finish is Finish.CLIENT_GONE or isinstance(self._error, RequestError):
            return self.usage.total_tokens > 0
        return self.finish is Finish.ENGINE_ERROR and self.opened.stream and self.usage.completion_tokens > 0

    @property
    def worked_off(self) -> Usage:
        """What limits count, billed or not: where no engine has told how long the prompt was, our own count of it."""
        if self._told or self.usage.prompt_tokens:
            return self.usage
        return msgspec.structs.replace(self.usage, prompt_tokens=self.opened.prompt_tokens_estimate)

    @property
    def engine_usage(self) -> Usage:
        """For the router, which learns about engines by what they say of a prompt and its cached part: nothing of it
        where only we have counted."""
        return Usage(completion_tokens=self.usage.completion_tokens) if self._counted_by_us else self.usage

    def finished(self, usage: Usage, finish: Finish = Finish.COMPLETE) -> None:
        """The attempt is over, and `usage` is the engine's final count."""
        self.ended = self._told = True
        self.finish, self.usage, self.outcome = finish, usage, Outcome.EXACT

    def counted(self, usage: Usage, finish: Finish, *, by_us: bool = False) -> None:
        """The attempt is over without a final count; `usage` was told last, or counted by us."""
        self.ended = True
        self._counted_by_us = by_us
        self.finish, self.usage = finish, usage
        self.outcome = Outcome.LOWER_BOUND if self.sent and not self.turned_away else Outcome.EXACT

    def failed(self, error: SlipstreamError) -> None:
        """The attempt ended with `error` after a lease was granted."""
        if self.finish is Finish.NOT_PLACED:
            self.finish = Finish.ENGINE_ERROR
        self._error = error

    def placed(self, engine: Engine) -> Placed:
        """The record that an engine is about to be called."""
        self.engine = engine
        return Placed(self._call.request_id, self.attempt, engine.replica_id, engine.url, engine.driver, engine.pool)

    def closed(self) -> Closed:
        """The record that the attempt is over."""
        return Closed(
            opened=self.opened,
            outcome=self.outcome,
            finish=self.finish,
            usage=self.usage,
            status=self.status,
            closed_at=time.time(),
            replica_id=self.engine.replica_id if self.engine else None,
            error_code=self.error_code,
            phases_ms=self._call.clock.as_ms(),
            billed=self.billed,
            pool=(self.engine.pool or None) if self.engine else None,
            driver=self.engine.driver if self.engine else None,
        )
