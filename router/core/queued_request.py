"""One ask that is being decided or waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts.desired_state import Model
from contracts.lease import LeaseRequest

if TYPE_CHECKING:
    from router.core.pool import PoolState
    from router.core.session import Session


class QueuedRequest:
    """Mutable; owned by the dispatcher."""

    __slots__ = (
        "ask",
        "asked_at",
        "deadline_at",
        "engine_model",
        "length",
        "length_class",
        "model",
        "number",
        "pool",
        "returned",
        "session",
        "start_by",
        "tpot_slo_s",
        "ttft_slo_s",
        "why",
        "work_s",
    )  # fmt: skip

    def __init__(self, session: Session, ask: LeaseRequest, model: Model, asked_at: float) -> None:
        self.session = session
        self.ask = ask
        self.model = model
        self.asked_at = asked_at
        self.deadline_at = asked_at + ask.deadline_s
        self.ttft_slo_s = 0.0
        """Time to first token promised to prompts of its tier and length; 0: none."""
        self.length = 0
        """Longest prompt of those that are promised the same; 0: nothing is promised."""
        self.length_class = 0
        """The same where length classes share the pool; 0: all are one, and who cannot be served is relieved."""
        self.work_s = 0.0
        """How long its prompt is expected to keep an average engine busy, known while it waits."""
        self.returned = False
        """It was refused before, told to come now, and has: its place was kept."""
        self.tpot_slo_s = 0.0
        """Time per token promised to those who run beside it; 0: none."""
        self.start_by = asked_at
        """When an engine must have it for the promise to hold; without a promise, when it was asked."""
        self.number = 0
        """Order of arrival in the queue."""
        self.pool: PoolState | None = None
        """In whose queue it stands; None: in none (any more), though the deadline heap may still hold it."""
        self.engine_model = model.engine_model or model.name
        self.why = ""
        """What kept it from being placed when it was last tried."""

    def again(self, model: Model) -> QueuedRequest:
        """The same ask under a new desired state, as old as it was."""
        return QueuedRequest(self.session, self.ask, model, self.asked_at)
