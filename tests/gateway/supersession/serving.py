"""What the pipeline does with a request that its limits let through."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gateway.supersession.in_flight_request import InFlightRequest
from gateway.supersession.lineage import Keystroke
from gateway.supersession.supersession import Supersession


@contextlib.contextmanager
def served(
    supersession: Supersession, request_id: str, keystroke: Keystroke | None, spared: str | None = None
) -> Iterator[InFlightRequest]:
    """A request in flight, for the block."""
    with supersession.registered(request_id, keystroke, spared) as in_flight:
        supersession.supersede_older(in_flight)
        yield in_flight
