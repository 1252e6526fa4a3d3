"""Detects HTTP/1.0 on either side of a proxy: it has no chunks and no persistent connections."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "http_version"
FIX_UPSTREAM = (
    'nginx (whose default it is before 1.29.7): `proxy_http_version 1.1;` and `proxy_set_header Connection "";` in the '
    "location, and `keepalive 64;` in the upstream."
)
FIX_CLIENT = "The server that the client connects to answers in HTTP/1.0; it must speak HTTP/1.1 or newer."


def judge(measured: Measured) -> Verdict:
    """Judge by the version in which the gateway received the request, and by that of the response."""
    openings = [stream.opening for stream in measured.streams if stream.opening is not None]
    if not openings:
        return not_enough(CHECK, "no stream came")
    old = sum(opening.http_version == "1.0" for opening in openings)
    if old:
        return finding(
            CHECK,
            "http_1_0_upstream",
            f"{old} of {len(openings)} requests reached the gateway in HTTP/1.0, though they left in HTTP/1.1: each "
            "needs its own connection, and a stream that breaks off looks like one that ended.",
            FIX_UPSTREAM,
        )
    answers = [stream.http_version for stream in measured.streams]
    if "1.0" in answers:
        evidence = f"{answers.count('1.0')} of {len(answers)} answers came in HTTP/1.0"
        return finding(CHECK, "http_1_0_answer", f"{evidence}, though they left the gateway in HTTP/1.1.", FIX_CLIENT)
    return clear(CHECK, f"HTTP/{openings[0].http_version} at the gateway, HTTP/{answers[0]} at the client")
