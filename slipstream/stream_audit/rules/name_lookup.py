"""Detects a slow look-up of the name."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "dns"
SLOW_MS = 100.0
FIX = (
    "A resolver near the client that caches (systemd-resolved, unbound, NodeLocal DNSCache in Kubernetes), a longer "
    "TTL of the record, and connections that are kept, so that few look-ups are needed."
)


def judge(measured: Measured) -> Verdict:
    """Judge one look-up, the first of this process: later ones are usually cached."""
    taken_ms = measured.connection.dns_ms
    if taken_ms is None:
        return not_enough(CHECK, "the URL has an address: no name was looked up")
    if taken_ms > SLOW_MS:
        return finding(CHECK, "dns_slow", f"One look-up took {taken_ms:.0f} ms; {SLOW_MS:.0f} ms are slow.", FIX)
    return clear(CHECK, f"one look-up took {taken_ms:.1f} ms")
