"""Detects a long round trip, which delays every new connection and every first token."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding

CHECK = "round_trip"
FAR_MS = 100.0
"""Within a region it is 30 to 80 ms at most, between regions 200 to 400 (the founding documents' numbers)."""
FIX = (
    "Gateways in the region of these clients, or a front near them (a load balancer's edge) that keeps its connections "
    "to the gateway open. Faster engines do not help here."
)


def judge(measured: Measured) -> Verdict:
    """Judge by TCP's handshake with the server, which may be a front near the client."""
    connect_ms = measured.connection.connect_ms
    if connect_ms > FAR_MS:
        return finding(
            CHECK,
            "far_away",
            f"TCP connects in {connect_ms:.0f} ms, a round trip; within a region it is under 80.",
            FIX,
        )
    return clear(CHECK, f"TCP connects in {connect_ms:.1f} ms, a round trip")
