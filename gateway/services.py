"""What a running gateway consists of. Made once by `main`, handed to every handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from litestar.types import ASGIApp

from contracts.errors import SlipstreamError
from contracts.phases import Phase
from contracts.replica_state import ReplicaState
from gateway.admin.api import AdminApi
from gateway.auth.keyring import Keyring
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.model_catalog import ModelCatalog
from gateway.serving.pipeline import RequestPipeline
from gateway.serving.request import Arrival, Salts
from gateway.serving.trace import Traces


class Services(msgspec.Struct, kw_only=True):
    """References only; each part owns its own state."""

    keyring: Keyring
    catalog: ModelCatalog
    pipeline: RequestPipeline
    admin: AdminApi
    metrics: GatewayMetrics
    traces: Traces
    salts: Salts
    checks: dict[str, Callable[[], bool]]
    """What must hold for this instance to take traffic, by name."""
    replicas: Callable[[], Sequence[ReplicaState]]
    """Every engine, as the router told last."""
    endpoints: dict[str, ASGIApp] = {}
    """The inference endpoints by path."""
    draining: bool = False

    def readiness(self) -> dict[str, bool]:
        """Each check's answer now."""
        return {**{name: check() for name, check in self.checks.items()}, "accepting": not self.draining}

    def refused(self, arrival: Arrival, error: SlipstreamError, status: int) -> None:
        """Count a request that was refused before it was prepared, and record it when its caller is known."""
        self.metrics.answered("none", arrival.endpoint, status, error.code)  # its tier is not known
        if error.caller is not None:
            arrival.clock.end(Phase.AUTH)
            self.traces.refused(arrival, error.caller, status, error)
