"""What a running gateway consists of. Made once by `compose`, handed to every handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contracts.replica_state import ReplicaState
from gateway.autocomplete.event_rate import EventRate
from gateway.autocomplete.report_window import ReportWindow
from gateway.autocomplete.store import EventStore
from gateway.control_plane import ControlPlane
from gateway.serving.endpoint import InferenceServices
from gateway.stream_audit.endpoint import StreamAudits


class Services(InferenceServices, kw_only=True):
    """What endpoints need, and the rest."""

    control: ControlPlane
    completion_events: EventStore
    event_rate: EventRate
    report_window: ReportWindow
    stream_audits: StreamAudits
    checks: dict[str, Callable[[], bool]]
    """What must hold for this instance to take traffic, by name."""
    replicas: Callable[[], Sequence[ReplicaState]]
    """Every engine, as the router told last."""
    draining: bool = False

    def readiness(self) -> dict[str, bool]:
        """Each check's answer now."""
        return {**{name: check() for name, check in self.checks.items()}, "accepting": not self.draining}
