"""The phases of a request that are over, in the header that browsers and curl users know."""

from __future__ import annotations

from contracts.phases import PhaseClock


def server_timing(clock: PhaseClock) -> tuple[bytes, bytes]:
    """The header's name and value, in milliseconds."""
    entries = ", ".join([f"{phase};dur={spent_ms}" for phase, spent_ms in clock.as_ms().items()])
    return (b"server-timing", entries.encode())
