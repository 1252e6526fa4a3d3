"""Detects response headers that are lost or replaced on the way."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "response_headers"
FOR_PROXIES = frozenset({"x-accel-buffering"})
"""Headers for the proxy, which may remove them."""
PROXIES_OWN = frozenset({"content-type"})
"""Headers that a proxy may rewrite in an equivalent way."""
FIX = (
    "Pass them on: clients quote `x-request-id` when they report a fault, wait by `x-ratelimit-*` and `retry-after`, "
    "and see where time went in `server-timing`. nginx: no `proxy_hide_header` for them, no `add_header "
    "X-Request-ID` over ours, and no `proxy_cache` here."
)


def judge(measured: Measured) -> Verdict:
    """Judge by the headers that the gateway lists in the stream itself."""
    lost: dict[str, None] = {}
    changed: dict[str, None] = {}
    expected: dict[str, None] = {}
    streams = [stream for stream in measured.streams if stream.opening is not None]
    for stream in streams:
        assert stream.opening is not None
        for name, sent in stream.opening.headers.items():
            if name in FOR_PROXIES:
                continue
            expected[name] = None
            if name not in stream.headers:
                lost[name] = None
            elif name not in PROXIES_OWN and stream.headers[name] != sent:
                changed[name] = None
    if not streams:
        return not_enough(CHECK, "no stream came")
    if lost or changed:
        parts = [f"{verb}: {', '.join(names)}" for verb, names in (("Lost", lost), ("Changed", changed)) if names]
        return finding(CHECK, "headers_lost" if lost else "headers_changed", "; ".join(parts) + ".", FIX)
    return clear(CHECK, f"all came as they were sent: {', '.join(expected)}")
