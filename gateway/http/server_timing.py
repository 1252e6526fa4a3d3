"""Formats a request's ended phases as the header `Server-Timing`, which browsers show."""

from __future__ import annotations

from contracts.phases import PhaseClock


def server_timing(clock: PhaseClock) -> tuple[bytes, bytes]:
    """The header's name and value, in milliseconds."""
    entries = ", ".join([f"{phase};dur={spent_ms}" for phase, spent_ms in clock.as_ms().items()])
    return (b"server-timing", entries.encode())
