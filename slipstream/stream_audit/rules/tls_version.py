"""Detects TLS 1.2, which needs one round trip more than 1.3 for each connection."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "tls"
NEWEST = "TLSv1.3"
FIX = "nginx: `ssl_protocols TLSv1.2 TLSv1.3;`. The gateway's own TLS speaks 1.3 without a setting."


def judge(measured: Measured) -> Verdict:
    """Judge the handshake with the server."""
    tls = measured.connection.tls
    if tls is None:
        return not_enough(CHECK, "plain HTTP")
    facts = f"{tls.version}, {tls.cipher}, handshake in {tls.handshake_ms:.1f} ms, round trip {_round_trip(measured)}"
    if tls.version != NEWEST:
        return finding(CHECK, "tls_old", f"{facts}: one more round trip for each connection than {NEWEST} needs.", FIX)
    return clear(CHECK, f"{facts}; HTTP/2 is {'also' if tls.http2 else 'not'} offered")


def _round_trip(measured: Measured) -> str:
    return f"{measured.connection.connect_ms:.1f} ms"
