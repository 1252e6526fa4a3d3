"""Detects a path that takes much longer than one round trip and the gateway's own time."""

from __future__ import annotations

import re

from slipstream.stream_audit.measured import Measured, Stream
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "first_event"
SLOW_MS = 100.0
FIX = (
    "Look at each hop's own log of times (nginx: $upstream_connect_time, $upstream_header_time, $request_time): a hop "
    "that connects to another region, checks requests elsewhere (a WAF, an auth sub-request), or holds responses."
)
_DURATION = re.compile(r"dur=([0-9.]+)")


def judge(measured: Measured) -> Verdict:
    """Judge by the fastest request, measured after its connection was open: a single slow one proves nothing."""
    spent = [_spent(stream, measured.connection.connect_ms) for stream in measured.streams if stream.received]
    if not spent:
        return not_enough(CHECK, "no stream came")
    over_ms, total_ms, own_ms = min(spent)
    evidence = (
        f"the first event took {total_ms:.1f} ms: round trip {measured.connection.connect_ms:.1f}, gateway "
        f"{own_ms:.1f}, the rest {max(0.0, over_ms):.1f} (the best of {len(spent)})"
    )
    if over_ms > SLOW_MS:
        return finding(CHECK, "slow_hop", f"{evidence[0].upper()}{evidence[1:]}.", FIX)
    return clear(CHECK, evidence)


def _spent(stream: Stream, round_trip_ms: float) -> tuple[float, float, float]:
    """The rest, the total and the gateway's part, in milliseconds."""
    total_ms = (stream.received[0].arrived_s - stream.asked_s) * 1e3
    timing = stream.opening.headers.get("server-timing", "") if stream.opening is not None else ""
    own_ms = sum(float(duration) for duration in _DURATION.findall(timing))
    return total_ms - own_ms - round_trip_ms, total_ms, own_ms
