"""A span, independent of OpenTelemetry; `telemetry.tracing` exports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Value = str | int | float | bool | Sequence[str]


class Span(msgspec.Struct, frozen=True):
    """A timed operation. parent_id: the span that it is part of. Times are in nanoseconds since 1970."""

    name: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = {}
    kind: Literal["server", "client", "internal"] = "internal"
    span_id: str = ""
    """Empty if no other process received one."""
    failed: bool = False
