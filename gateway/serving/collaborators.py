"""Defines the pipeline's interfaces to its collaborators. Their own modules describe the implementations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from contracts.generation import Caller, Tier
from contracts.lease import Engine, Lease, LeaseEnd, LeaseRequest
from engines.drivers.base import Driver
from gateway.limits.cost import Cost
from gateway.limits.levels import Levels
from gateway.limits.reservations import Reservation
from gateway.metering.journal.records import Closed, Opened, Placed
from gateway.wire.gap import Gap
from gateway.wire.prepared import Prepared

if TYPE_CHECKING:
    from gateway.serving.attempt import Attempt


class UsageLimiter(Protocol):
    """`gateway.limits.limiter.Limiter`."""

    async def reserve(self, reservation_id: str, caller: Caller, tier: Tier, levels: Levels, cost: Cost) -> Reservation:
        """The caller must settle it; a cancelled call reserves nothing. Raises LimitError or ServiceError."""
        ...

    def settle(self, reservation: Reservation, used: Cost, *, refund_request: bool = False) -> Awaitable[None]:
        """Never raises."""
        ...


class UsageJournal(Protocol):
    """`gateway.metering.journal.journal.Journal`."""

    def opened(self, record: Opened) -> None:
        """Raises JournalUnavailable if the request must not be served."""
        ...

    def placed(self, record: Placed) -> None:
        """Raises JournalUnavailable if the engine must not be called."""
        ...

    async def closed(self, record: Closed) -> None:
        """Return once the record is on disk. Raises JournalUnavailable if the journal must write it later."""
        ...


class Router(Protocol):
    """`router.client.RouterClient`."""

    async def acquire(self, ask: LeaseRequest) -> Lease:
        """The caller must release the lease; a cancelled call takes none. Raises ServiceError or ModelNotFound."""
        ...

    def first_token(self, lease_id: str, ttft_s: float, cached_tokens: int) -> None:
        """Never raises."""
        ...

    def release(self, end: LeaseEnd) -> None:
        """Never raises."""
        ...


Drivers = Callable[[Engine], Driver]
"""Finds the driver of a granted engine, with its pool's options: `ModelCatalog.driver`."""


class EngineCaller(Protocol):
    """`gateway.serving.generator.Generator`, or `gateway.serving.single_shot.SingleShot`."""

    async def generate(self, attempt: Attempt, lease: Lease) -> bytes:
        """Serve the attempt on the granted engine, and end it. Returns the bytes that end the response. Raises
        SlipstreamError; cancelling stops the engine."""
        ...


class PrefixLog(Protocol):
    """`gateway.prefixes.store.PrefixSamples`."""

    def add(
        self, request_id: str, caller: Caller, endpoint: str, prepared: Prepared, *, texts_stored: bool = False
    ) -> None:
        """Record a request that an engine received. texts_stored: whether its organization has opted in."""
        ...


class CompletionTexts(Protocol):
    """`gateway.autocomplete.text_store.TextStore`."""

    def add(self, request_id: str, caller: Caller, gap: Gap, completion: str | None) -> None:
        """Store an answered gap. Never raises."""
        ...
