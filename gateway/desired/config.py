"""Settings of following the desired state."""

from __future__ import annotations

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3_600)]


class DesiredConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How soon an instance notices a new version."""

    poll_s: Seconds = 1.0
    """Interval between two reads of the table without an announcement. A version whose announcement was lost is found
    after this time."""
    heartbeat_s: Seconds = 1.0
    """Interval between two checks that announcements still arrive."""
    timeout_s: Seconds = 5.0
    """Longest wait for the database in one attempt."""
