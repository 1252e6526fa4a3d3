"""Defines the events of a request that features may watch without changing its path.

A feature subclasses `RequestObserver` and overrides the events that it needs. An observer's exception is logged and
counted, and the request continues. Features that change the path (limits, leases, supersession, continuations,
cascades, adapters) are called by name in `gateway.serving.pipeline`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from contracts.errors import SlipstreamError
    from contracts.lease import Engine
    from gateway.http.response import ResponseWriter
    from gateway.serving.attempt import Attempt
    from gateway.serving.request import InferenceRequest

P = ParamSpec("P")
logger = logging.getLogger(__name__)


class RequestObserver:
    """Watches requests. No method may block, because each is called from the request's own path."""

    def arrived(self, request: InferenceRequest) -> None:
        """The request is prepared; nothing has been reserved for it."""

    def placed(self, attempt: Attempt, engine: Engine) -> None:
        """The router granted the attempt a lease on `engine`; the engine has not been called."""

    def superseded(self, request: InferenceRequest, stage: str) -> None:
        """A newer keystroke ended the request in `stage`: queue, prefill or decode."""

    def aborted(self, cause: str, after_s: float) -> None:
        """The engine stopped generating `after_s` seconds after the `cause`: client_gone or superseded."""

    def failed(self, attempt: Attempt, error: SlipstreamError) -> None:
        """The attempt failed after its lease was granted."""

    def attempted(self, attempt: Attempt) -> None:
        """The attempt is over and its lease is released; its final record is about to be written."""

    def answered(self, attempt: Attempt) -> None:
        """The attempt has completed a customer's response. Superseded requests have no such event."""

    def ended(self, request: InferenceRequest, response: ResponseWriter) -> None:
        """The request is over, its usage is settled, and its last frame is written."""


class Event(list[Callable[P, None]]):
    """The methods that an event calls, in the order in which their observers subscribed."""

    def __init__(self, broken: Callable[[str], None]) -> None:
        """broken: gets the name of each method that raised."""
        super().__init__()
        self._broken = broken

    def __call__(self, *facts: P.args, **named: P.kwargs) -> None:
        for observe in self:
            try:
                observe(*facts, **named)
            except (Exception, asyncio.CancelledError):  # a CancelledError comes from a future it read
                logger.exception("an observer failed; its request continues: %s", observe.__qualname__)
                self._broken(observe.__qualname__)


class Observers:
    """For each event, the methods of the observers that override it."""

    def __init__(self, broken: Callable[[str], None]) -> None:
        """broken: see `Event`."""
        self.arrived: Event[[InferenceRequest]] = Event(broken)
        self.placed: Event[[Attempt, Engine]] = Event(broken)
        self.superseded: Event[[InferenceRequest, str]] = Event(broken)
        self.aborted: Event[[str, float]] = Event(broken)
        self.failed: Event[[Attempt, SlipstreamError]] = Event(broken)
        self.attempted: Event[[Attempt]] = Event(broken)
        self.answered: Event[[Attempt]] = Event(broken)
        self.ended: Event[[InferenceRequest, ResponseWriter]] = Event(broken)

    def subscribe(self, *observers: RequestObserver) -> None:
        """Call the observers from now on, for the events that they override."""
        for observer in observers:
            for event, subscribers in vars(self).items():
                if getattr(type(observer), event) is not getattr(RequestObserver, event):
                    subscribers.append(getattr(observer, event))
