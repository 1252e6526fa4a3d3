"""Settings of the worker's upkeep of the ledger."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed

Period = Annotated[float, msgspec.Meta(ge=1, le=86_400)]


class UpkeepConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days of the ledger, verification and reconciliation."""

    retention_days: Annotated[int, msgspec.Meta(ge=35, le=36_500)] = 400
    """Days for which single events are kept; they are deleted by whole days. Keep at least a month and the period that
    invoices need. Roll-ups are kept forever."""
    trace_retention_days: Annotated[int, msgspec.Meta(ge=1, le=36_500)] = 30
    """Days for which these can be looked up: the phases and the refusal of a request, the outcome of a completion in an
    editor, the texts of organizations that have them stored, and clients' stored responses and conversations. None of
    them is needed for billing."""
    days_ahead: Fixed[Annotated[int, msgspec.Meta(ge=0, le=366)]] = 7
    """Days whose partitions are created ahead."""
    days_every_s: Fixed[Period] = 3_600.0
    """Interval between two checks of the partitions and of retention."""
    verify_every_s: Period = 86_400.0
    """Interval between two comparisons of the roll-ups with the events."""
    verify_days: Fixed[Annotated[int, msgspec.Meta(ge=0, le=366)]] = 2
    """Number of days before today that are compared. Every one of their events is read."""
    reconcile_every_s: Period = 300.0
    """Interval between two samples of the engines' counters. Tokens that an engine counts between its last sample and a
    crash are never compared."""
    window_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 3_600.0
    """Minimum period that is compared with the ledger at once. Longer windows find smaller leaks, because the number of
    attempts running at their edges does not grow."""
    settle_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 600.0
    """Time after a sample in which its attempts may still be running or not be in the ledger yet."""
