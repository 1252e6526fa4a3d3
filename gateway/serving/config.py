"""Settings for serving decoded requests on engines."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed
from contracts.generation import Tier

Seconds = Annotated[float, Meta(gt=0, le=3_600)]


class QueueDeadlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a request of each tier may wait for an engine before it is refused."""

    chat: Seconds = 30.0
    """Longest wait of a chat request for an engine, in seconds."""
    autocomplete: Seconds = 3.0
    """Longest wait of an autocomplete request for an engine, in seconds. A later completion is useless."""

    def __getitem__(self, tier: Tier) -> float:
        """The deadline of a tier, in seconds."""
        return self.chat if tier is Tier.CHAT else self.autocomplete


class ServingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Retries, waits and timeouts of requests to engines."""

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 2
    """Maximum number of engines tried for one request, until one begins to respond."""
    queue_deadline_s: QueueDeadlines = QueueDeadlines()
    """How long a request waits for an engine, by tier."""
    connect_timeout_s: Fixed[Seconds] = 2.0
    """Longest wait for a connection to an engine."""
    first_event_timeout_s: Seconds = 120.0
    """Longest wait for an engine's first event."""
    adapter_load_timeout_s: Fixed[Seconds] = 60.0
    """Longest wait for an engine to load a LoRA adapter."""
    event_timeout_s: Seconds = 60.0
    """Longest time without an event from an engine between two events."""
    client_stall_timeout_s: Seconds = 30.0
    """Longest time for a client to read its buffered data, about 64 kB. After it, the connection is closed."""
    abort_drain_s: Fixed[Seconds] = 5.0
    """How long to wait for the engine's final token count after a client has disconnected."""
