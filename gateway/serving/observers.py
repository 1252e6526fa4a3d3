"""The events of a request that features may watch without changing its path.

A feature subclasses `RequestObserver` and overrides the events that it needs. An event without a subscriber costs one
empty loop. Features that change the path (limits, leases, supersession, continuations, cascades, adapters) are called
by name in `gateway.serving.pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contracts.errors import SlipstreamError
    from contracts.lease import Engine
    from gateway.http.response import ResponseWriter
    from gateway.serving.attempt import Attempt
    from gateway.serving.request import InferenceRequest


class RequestObserver:
    """Watches requests. No method may raise or wait: each is called from the request's own path."""

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
        """A customer's request has its complete response from this attempt. Superseded requests have none."""

    def ended(self, request: InferenceRequest, response: ResponseWriter) -> None:
        """The request is over, its usage is settled, and its last frame is written."""


class Observers:
    """For each event, the methods of the observers that override it, in the order in which they subscribed."""

    def __init__(self) -> None:
        self.arrived: list[Callable[[InferenceRequest], None]] = []
        self.placed: list[Callable[[Attempt, Engine], None]] = []
        self.superseded: list[Callable[[InferenceRequest, str], None]] = []
        self.aborted: list[Callable[[str, float], None]] = []
        self.failed: list[Callable[[Attempt, SlipstreamError], None]] = []
        self.attempted: list[Callable[[Attempt], None]] = []
        self.answered: list[Callable[[Attempt], None]] = []
        self.ended: list[Callable[[InferenceRequest, ResponseWriter], None]] = []

    def subscribe(self, *observers: RequestObserver) -> None:
        """Call them from now on, for the events that they override."""
        for observer in observers:
            for event, subscribers in vars(self).items():
                if getattr(type(observer), event) is not getattr(RequestObserver, event):
                    subscribers.append(getattr(observer, event))
