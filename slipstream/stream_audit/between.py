"""Detects an HTTP proxy between client and gateway. Pure."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured

TOLD_BY_ANSWERS = ("server", "via")
"""Headers that a gateway does not send."""
TOLD_BY_REQUESTS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")


def proxy_signs(measured: Measured) -> tuple[str, ...]:
    """Signs of a proxy, in words. An empty tuple does not prove that there is no proxy."""
    signs: dict[str, None] = {}
    for stream in measured.streams:
        for name in TOLD_BY_ANSWERS:
            if name in stream.headers:
                signs[f"the answer has '{name}: {stream.headers[name]}'"] = None
        opening = stream.opening
        if opening is None:
            continue
        for name in TOLD_BY_REQUESTS:
            if name in opening.request_headers:
                signs[f"the gateway got a header '{name}' that was not sent"] = None
        if opening.http_version != "1.1":
            signs[f"the gateway received HTTP/{opening.http_version}"] = None
    return tuple(signs)
