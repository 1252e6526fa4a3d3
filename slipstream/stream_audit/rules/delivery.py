"""Detects delayed delivery of events: buffers, flushes by the clock, Nagle's algorithm."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured, Stream
from slipstream.stream_audit.pattern import Pattern, enough, pattern_of
from slipstream.stream_audit.timing import Timing, timing_of
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "delivery"
FIXES = {
    Pattern.BUFFERED: (
        "A proxy collects the answer. nginx: `proxy_buffering off;` in the location, and no `proxy_ignore_headers "
        "X-Accel-Buffering;` (the gateway's header turns buffering off by itself where it is honoured). Where answers "
        "are compressed, `gzip off;` too. CDNs and WAFs: no response inspection or caching for text/event-stream."
    ),
    Pattern.FLUSHED_BY_TIME: (
        "A hop forwards events on a timer. Caddy and Go's ReverseProxy: `flush_interval -1`; Apache: "
        "`flushpackets=on` and `flushwait=10` at most on ProxyPass; Envoy filters, meshes: no response buffering."
    ),
    Pattern.NAGLE: (
        "A sender waits for the acknowledgement of its last packet (Nagle's algorithm), which the receiver delays. "
        "nginx: `tcp_nodelay on;` and `tcp_nopush off;` for the location; HAProxy: `option http-no-delay`; in own "
        "proxies set TCP_NODELAY on both sockets."
    ),
    Pattern.JOINED: (
        "Run the audit from other places, nearest to the gateway first: check the hop at which events begin to "
        "join. Lost packets (a bad wireless link, `ss -ti` shows retransmissions) do it, too."
    ),
}


def judge(measured: Measured) -> Verdict:
    """Judge by a slow and a fast stream."""
    slow, fast = measured.slow, measured.fast
    if slow is None or fast is None:
        return not_enough(CHECK, "no stream came")
    for stream in (slow, fast):
        if not stream.complete:
            progress = f"{len(stream.received)} of {stream.events} events came"
            return not_enough(CHECK, f"a stream broke off: {progress} ({stream.failure or 'it ended early'})")
    slow_timing, fast_timing = timing_of(slow), timing_of(fast)
    round_trip_ms = measured.connection.connect_ms
    pattern = pattern_of(slow_timing, fast_timing, slow.interval_ms, fast.interval_ms, round_trip_ms)
    evidence = f"{_told(slow, slow_timing)}; {_told(fast, fast_timing)}"
    if pattern is Pattern.UNKNOWN:
        return not_enough(CHECK, enough(slow_timing, slow.interval_ms) or enough(fast_timing, fast.interval_ms))
    if pattern is Pattern.PROMPT:
        return clear(CHECK, evidence)
    return finding(CHECK, pattern.value, f"{evidence[0].upper()}{evidence[1:]}.", FIXES[pattern])


def _told(stream: Stream, timing: Timing) -> str:
    parts = [
        f"of {stream.events} events {stream.interval_ms} ms apart {timing.joined} of {timing.judged} arrived joined"
    ]
    if timing.joined:
        parts.append(f"typically {timing.typical_group:.0f} at once")
        parts.append(f"{timing.group_bytes:,.0f} bytes")
        if timing.period_ms:
            parts.append(f"every {timing.period_ms:.0f} ms")
        parts.append(f"{timing.joined_chunks} in one HTTP chunk")
    parts.append(f"delayed {timing.delay_ms(0.5):.1f} ms (half of them) to {timing.delay_ms(1.0):.1f} ms")
    if timing.excused:
        parts.append(f"{timing.excused} left out because this machine was busy")
    return ", ".join(parts)
