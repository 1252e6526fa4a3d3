"""What a span is, for those who know when something was; `telemetry.tracing` exports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Value = str | int | float | bool | Sequence[str]


class Span(msgspec.Struct, frozen=True):
    """Something that took time. parent_id: the span it is a part of. Times in nanoseconds since 1970."""

    name: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = {}
    kind: Literal["server", "client", "internal"] = "internal"
    span_id: str = ""
    """Empty: nobody was told one."""
    failed: bool = False
