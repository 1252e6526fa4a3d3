"""Detects connections that a client cannot reuse for a second request."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "connection_reuse"
FEWEST = 3
TOO_MANY = 0.5
FIX = (
    "Let clients keep their connections. nginx: `keepalive_timeout 75s;` (not 0) and `keepalive_requests 10000;`. In "
    "clients: one client object for all requests, not one for each."
)


def judge(measured: Measured) -> Verdict:
    """Judge by the requests that immediately follow the first one."""
    later = measured.streams[1:]
    if len(later) < FEWEST:
        return not_enough(CHECK, f"{len(later)} requests after the first; {FEWEST} are needed")
    fresh = sum(stream.new_connection for stream in later)
    facts = f"{fresh} of {len(later)} requests after the first needed a new connection"
    if fresh / len(later) < TOO_MANY:
        return clear(CHECK, facts)
    tls = measured.connection.tls
    cost_ms = measured.connection.connect_ms + (tls.handshake_ms if tls is not None else 0.0)
    closing = sum(stream.headers.get("connection", "").lower() == "close" for stream in measured.streams)
    note = f"; {closing} of {len(measured.streams)} answers said 'connection: close'" if closing else ""
    return finding(
        CHECK, "connection_not_reused", f"{facts}, which costs {cost_ms:.1f} ms of each one's first token{note}.", FIX
    )
