"""Defines the parts of a running gateway, which `compose` creates once, and the parts that its process provides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from contracts.replica_state import ReplicaState
from gateway.autocomplete.services import CompletionServices
from gateway.desired.store import DesiredStateStore
from gateway.limits.limiter import Limiter
from gateway.limits.spending import CrossingSink
from gateway.responses.background import BackgroundResponses
from gateway.responses.conversations import ConversationStore
from gateway.responses.event_streams import EventStreams
from gateway.responses.store import ResponseStore
from gateway.stream_audit.endpoint import StreamAudits


class Services(CompletionServices, kw_only=True):
    """Services that the endpoints and the process use."""

    limiter: Limiter
    stream_audits: StreamAudits
    responses: ResponseStore
    conversations: ConversationStore
    background: BackgroundResponses
    event_streams: EventStreams
    checks: dict[str, Callable[[], bool]]
    """Conditions for this instance to take traffic, by name."""
    replicas: Callable[[], Sequence[ReplicaState]]
    """Returns every engine's state, as the router last reported it."""
    draining: bool = False

    def readiness(self) -> dict[str, bool]:
        """The result of each check."""
        return {**{name: check() for name, check in self.checks.items()}, "accepting": not self.draining}


class MountedApp(Protocol):
    """Another ASGI application on the gateway's port."""

    def serves(self, path: str) -> bool:
        """Whether this application serves the path. Pages of other origins may not call it."""
        ...

    def document(self, document: bytes) -> bytes:
        """Add this application's paths that accept the same keys to the inference API's OpenAPI document. Called in a
        thread."""
        ...

    def start(self) -> None:
        """Called once the gateway accepts connections."""
        ...

    async def stop(self) -> None:
        """Called after the gateway's last request. Idempotent."""
        ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        ...


class Seeding(Protocol):
    """Puts the settings' models and pools in force."""

    done: bool
    """Whether the settings have been compared with the state in force, and written if they are new."""

    async def start(self) -> None:
        """Try once, and continue in the background if the database cannot be reached. Raises ConfigError."""
        ...

    async def stop(self) -> None:
        """Stop trying. Idempotent."""
        ...


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a gateway's process that the data plane does not know. The process's composition provides them."""

    seeding: Callable[[DesiredStateStore], Seeding]
    crossing: CrossingSink
    """Called for each budget that has reached a threshold."""
    mount: Callable[[Services], MountedApp] | None = None
    """Creates the application that shares the gateway's port; None if there is none."""
    port_kept: bool = False
    """Whether `slipstream up` reserves the port for this deployment's gateways."""
