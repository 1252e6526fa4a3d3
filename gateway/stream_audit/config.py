"""Settings of the known stream."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class StreamAuditConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of `GET /v1/stream-audit`, with which `slipstream tools audit-stream` measures the network. One stream
    costs its key one request and no tokens."""

    max_events: Annotated[int, Meta(ge=1, le=100_000)] = 2_000
    """Most events of one stream."""
    min_interval_ms: Annotated[int, Meta(ge=1, le=10_000)] = 10
    """Shortest time between two events of a stream."""
    max_duration_s: Annotated[float, Meta(gt=0, le=3_600)] = 130.0
    """Longest stream: long enough for a silence of two minutes, like that before an unstreamed response."""
    max_streams_per_key: Annotated[int, Meta(ge=1, le=1_000)] = 2
    """Streams that one key may have from one gateway at the same time."""
    max_streams_per_organization: Annotated[int, Meta(ge=1, le=10_000)] = 4
    """Streams that all keys of one organization may have from one gateway at the same time."""
    max_streams: Annotated[int, Meta(ge=1, le=10_000)] = 16
    """Streams of all keys at the same time, for one gateway."""
