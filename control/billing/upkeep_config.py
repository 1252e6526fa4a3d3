"""Settings of the worker's upkeep of the ledger."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed

Period = Annotated[float, msgspec.Meta(ge=1, le=86_400)]


class UpkeepConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days of the ledger, verification and reconciliation."""

    retention_days: Annotated[int, msgspec.Meta(ge=35, le=36_500)] = 400
    """How long single events are kept; whole days are dropped. At least a month and what an invoice needs. Roll-ups
    stay forever."""
    trace_retention_days: Annotated[int, msgspec.Meta(ge=1, le=36_500)] = 30
    """How long the phases and the refusal of a single request can be looked up, what became of a completion in an
    editor, the texts of organizations that have them stored, and responses and conversations that clients had stored;
    nothing is billed by them."""
    days_ahead: Fixed[Annotated[int, msgspec.Meta(ge=0, le=366)]] = 7
    """Days whose partitions are created ahead."""
    days_every_s: Fixed[Period] = 3_600.0
    """Seconds between two checks of the days and of retention."""
    verify_every_s: Period = 86_400.0
    """Seconds between two comparisons of the roll-ups with the events."""
    verify_days: Fixed[Annotated[int, msgspec.Meta(ge=0, le=366)]] = 2
    """How many days before today are compared; each of their events is read."""
    reconcile_every_s: Period = 300.0
    """Seconds between two samples of the engines' counters. What an engine counts between its last sample and a crash
    is never compared."""
    window_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 3_600.0
    """The least time that is compared with the ledger at once. Longer windows find smaller leaks: what is under way at
    their edges does not grow."""
    settle_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 600.0
    """Time after a sample in which its attempts may still be running or on their way into the ledger."""
