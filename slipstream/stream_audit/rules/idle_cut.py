"""Detects a connection that is cut during a long silence, like the one before the first token of a long prompt."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "silence"
EVENTS = 2
FIX = (
    "Raise the read timeout: a stream is silent for 15 s at most, and an answer that is not streamed until it is "
    "whole. nginx `proxy_read_timeout` (its default is 60 s), AWS ALB idle timeout, HAProxy `timeout server`, Envoy "
    "route `timeout` and `stream_idle_timeout`. NAT and firewalls: TCP keep-alive probes on the sockets."
)


def judge(measured: Measured) -> Verdict:
    """Judge by a stream of two events with the silence between them."""
    idle = measured.idle
    if idle is None:
        return not_enough(CHECK, "not requested: --idle-s 15 measures the longest silence of a stream")
    silence_s = idle.interval_ms / 1e3
    if idle.complete and len(idle.received) == EVENTS:
        return clear(CHECK, f"the connection outlived {silence_s:g} s of silence")
    if not idle.received:
        return not_enough(CHECK, f"the stream did not begin ({idle.failure or f'HTTP {idle.status}'})")
    lasted_s = idle.ended_s - idle.received[0].arrived_s
    return finding(
        CHECK,
        "cut_when_silent",
        f"The connection was cut after {lasted_s:.1f} s of silence; {silence_s:g} s were requested "
        f"({idle.failure or 'it ended without its last event'}).",
        FIX,
    )
