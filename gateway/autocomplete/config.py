"""Settings of editors' reports about completions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class AutocompleteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Views, selections and dismissals that editors report."""

    events_per_second: Annotated[float, Meta(gt=0, le=1_000_000)] = 500.0
    """Sustained number of events per second that one project may report to one gateway, with bursts of ten times as
    many. All projects of one organization together may report twice as many."""
    flush_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """Interval between writes of reported events to the database."""
