"""Detects a proxy that does not reuse its connections to the gateway."""

from __future__ import annotations

from slipstream.stream_audit.between import proxy_signs
from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "upstream_reuse"
FEWEST = 3
TOO_MANY = 0.5
"""Share of new connections that is a finding; a proxy under growing load opens some."""
FIX = (
    'nginx: `proxy_http_version 1.1;`, `proxy_set_header Connection "";`, and `keepalive 64;` in an `upstream` block. '
    "Others: allow idle connections to the gateway, for less than gateway.connections.idle_timeout_s."
)


def judge(measured: Measured) -> Verdict:
    """Judge by the gateway's count of earlier requests on a connection, of any client. Each gateway's first response is
    left out, because the proxy may have had no connection to it."""
    signs = proxy_signs(measured)
    if not signs:
        return clear(CHECK, "no sign of a proxy: the client's own connection is the gateway's")
    known: set[str] = set()
    fresh = counted = closing = 0
    for opening in (stream.opening for stream in measured.streams if stream.opening is not None):
        closing += opening.closes
        if opening.instance in known:
            counted += 1
            fresh += opening.request_number == 1
        known.add(opening.instance)
    if counted < FEWEST:
        return not_enough(
            CHECK, f"{len(known)} gateways answered, so that only {counted} requests came to one a second time"
        )
    evidence = f"{fresh} of {counted} requests reached the gateway on a connection that was new to it"
    if fresh / counted < TOO_MANY:
        return clear(CHECK, evidence)
    note = f"; {closing} asked it to close the connection afterwards" if closing else ""
    return finding(CHECK, "upstream_not_reused", f"{evidence}{note} ({signs[0]}).", FIX)
