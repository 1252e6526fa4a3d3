"""Provides the client of background work, which never leaves and drops its response."""

from __future__ import annotations

from collections.abc import Callable

from gateway.http.disconnect import ClientWatch
from gateway.http.response import ResponseWriter
from gateway.serving.attempt import Client
from gateway.serving.idle_timeout import Wait
from gateway.supersession.in_flight_request import InFlightRequest


def nobody(request_id: str, wait: Wait) -> Client:
    """A client for background work. wait: its stream's current wait."""
    return Client(Unread(), ClientWatch(_Nobody()), wait, InFlightRequest(request_id, None))


class _Nobody:
    """A connection that never closes."""

    on_gone: Callable[[], None] | None = None
    gone = False


class Unread(ResponseWriter):
    """A response without a connection, which is dropped."""

    __slots__ = ()

    def __init__(self) -> None:
        self.headers = []
        self.status = 0
        self.error = self.error_code = None

    def start_stream(self) -> None:
        """Send nothing."""
        self.status = 200

    def events(self, data: bytes) -> None:
        """Send nothing."""

    @property
    def full(self) -> bool:
        return False

    async def drained(self) -> None:
        """Return at once."""
