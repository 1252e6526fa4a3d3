"""What one attempt's journal records will say, filled in while it runs."""

from __future__ import annotations

import time

from contracts.errors import EngineFailed, EngineTimeout, SlipstreamError
from contracts.lease import Engine
from contracts.usage import Finish, Outcome, Usage
from gateway.call import Call
from gateway.metering.records import Closed, Opened, Placed, engine_request_id


class Books:
    """The state of an attempt that its `opened`, `placed` and `closed` records are made from.

    Until something better is known an attempt was never placed and used nothing, exactly.
    """

    def __init__(self, call: Call, attempt: int) -> None:
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
        self.reached = False
        """The engine's first event has come."""
        self.ended = False
        """The engine ended as it should; `usage` is its final count, if it gave one."""
        self.finish = Finish.NOT_PLACED
        self.outcome = Outcome.EXACT
        self.usage = Usage()
        self.error_code: str | None = None
        self.status = 499
        """What the client was given; 499 says that it left before."""
        self.engine_fault = False

    @property
    def billed(self) -> bool:
        """Whether this attempt is the one the customer pays for. Nothing generated, nothing billed; and a whole answer
        that an engine broke off reached nobody."""
        if self.outcome is Outcome.UNKNOWN:
            return False
        if self.finish is Finish.COMPLETE:
            return True
        delivered = self.finish is Finish.CLIENT_GONE or (self.finish is Finish.ENGINE_ERROR and self.opened.stream)
        return delivered and self.usage.completion_tokens > 0

    def finished(self, usage: Usage | None, finish: Finish = Finish.COMPLETE) -> None:
        """The engine ended and gave its final count (None: it gives none)."""
        self.finish = finish
        self.ended = True
        self.outcome = Outcome.EXACT if usage is not None else Outcome.UNKNOWN
        self.usage = usage or Usage()

    def last_seen(self, usage: Usage | None) -> None:
        """The engine was lost or refused; `usage` is the last count it gave."""
        if self.finish is not Finish.CLIENT_GONE:
            self.finish = Finish.ENGINE_ERROR
        self.usage = usage or Usage()
        self.outcome = Outcome.LOWER_BOUND if self.reached or self.finish is Finish.CLIENT_GONE else Outcome.EXACT

    def failed(self, error: SlipstreamError) -> None:
        """The attempt ended with `error` after a lease was granted."""
        if self.finish is Finish.NOT_PLACED:
            self.finish = Finish.ENGINE_ERROR
        self.engine_fault = isinstance(error, EngineFailed | EngineTimeout)

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
