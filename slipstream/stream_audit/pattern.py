"""Which pattern a slow and a fast stream arrived in. Pure.

cause                       slow stream               fast stream                   what stays the same
nothing in the way          each by itself            each by itself
a buffer of some size       joined, or all at its end joined                        bytes of a group
a flush by the clock        joined, or delayed        joined                        time between groups
Nagle and delayed ACKs      each by itself, prompt    joined, 40 ms or a round trip time between groups
                                                      from group to group
"""

from __future__ import annotations

from enum import StrEnum

from slipstream.stream_audit.timing import Timing

FEWEST_JUDGED = 12
"""Fewer events say nothing about a pattern."""
FEWEST_JUDGED_PART = 0.5
JOINED = 0.3
"""More than this part of a slow stream's events joined is a pattern; what is lost and sent again joins fewer."""
FAST_JOINED = 0.5
"""The same of a fast stream, whose events a network's ordinary jitter joins more easily."""
WHOLE = 0.8
"""Of a stream's events in one group."""
ALIKE = 1.6
"""Two numbers are alike when neither is so many times the other."""
ROUND_TRIP = 1.5
"""The same of a period and a round trip; a group waits for a round trip and then for its first event."""
LATE_PACE = 2.0
"""A gateway that sends at less than half the pace is too busy to be measured by."""
DELAYED_ACK_MS = (25.0, 60.0)
"""Linux holds an acknowledgement back for 40 ms."""
FEWEST_PERIODS = 5
"""Of a fast stream whose slow twin came by itself: what holds back for long would have joined that, too."""
FLUSH_DELAY = 0.15
"""A flush by the clock delays a slow stream's events by anything up to its period, Nagle's rule not at all."""


class Pattern(StrEnum):
    """How events arrive."""

    PROMPT = "prompt"
    BUFFERED = "buffered"
    FLUSHED_BY_TIME = "flushed_by_time"
    NAGLE = "nagle"
    JOINED = "joined"
    """Together, in no pattern that is known here."""
    UNKNOWN = "unknown"
    """Not enough evidence."""


def enough(timing: Timing, interval_ms: float) -> str:
    """Why this stream says nothing; empty when it does."""
    events = timing.judged + timing.excused
    if timing.sent_interval_ms > LATE_PACE * interval_ms:
        return (
            f"the gateway sent an event each {timing.sent_interval_ms:.0f} ms instead of every {interval_ms:.0f} ms: "
            "it is too busy for a measurement"
        )
    if timing.judged < max(FEWEST_JUDGED, FEWEST_JUDGED_PART * events):
        return (
            f"of {events} events only {timing.judged} arrived while this machine ran the audit: it is too busy for "
            "a measurement"
        )
    return ""


def pattern_of(slow: Timing, fast: Timing, slow_ms: float, fast_ms: float, round_trip_ms: float) -> Pattern:
    """slow_ms, fast_ms: the paces asked for."""
    if enough(slow, slow_ms):
        return Pattern.UNKNOWN
    if slow.joined_part > JOINED:
        return _slow_joined(slow, fast, round_trip_ms)
    if enough(fast, fast_ms):
        return Pattern.UNKNOWN
    if fast.joined_part <= FAST_JOINED:
        return Pattern.PROMPT
    if _largest(fast) >= WHOLE:
        return Pattern.BUFFERED
    if not fast.regular or len(fast.periods_ms) < FEWEST_PERIODS:
        return Pattern.PROMPT  # but for the network's jitter, which the evidence has in its delays
    if _by_round_trip(fast.period_ms, round_trip_ms):
        return Pattern.NAGLE
    if slow.delay_ms(0.8) > FLUSH_DELAY * fast.period_ms:
        return Pattern.FLUSHED_BY_TIME
    return Pattern.NAGLE if DELAYED_ACK_MS[0] <= fast.period_ms <= DELAYED_ACK_MS[1] else Pattern.JOINED


def _slow_joined(slow: Timing, fast: Timing, round_trip_ms: float) -> Pattern:
    if _largest(slow) >= WHOLE:
        return Pattern.BUFFERED
    if alike(slow.group_bytes, fast.group_bytes) and not alike(slow.period_ms, fast.period_ms):
        return Pattern.BUFFERED
    if _by_round_trip(fast.period_ms, round_trip_ms):
        return Pattern.NAGLE
    if fast.joined_part > FAST_JOINED and fast.regular:
        return Pattern.FLUSHED_BY_TIME
    return Pattern.BUFFERED if _largest(fast) >= WHOLE else Pattern.JOINED


def alike(one: float, other: float, times: float = ALIKE) -> bool:
    """Neither is more than so many times the other; nothing is like 0."""
    return 0 < one <= times * other and other <= times * one


def _largest(timing: Timing) -> float:
    """The part of the events that the largest group holds."""
    events = sum(group.events for group in timing.groups)
    return max(group.events for group in timing.groups) / events if events else 0.0


def _by_round_trip(period_ms: float, round_trip_ms: float) -> bool:
    """Groups follow each other as acknowledgements over a long way do; over a short one none is waited for."""
    return round_trip_ms >= DELAYED_ACK_MS[0] and alike(period_ms, round_trip_ms, ROUND_TRIP)
