"""Recognizes the pattern in which a slow and a fast stream arrived. Pure.

cause                       slow stream               fast stream                   constant quantity
no obstacle                 each by itself            each by itself
a buffer of some size       joined, or all at its end joined                        bytes of a group
a flush by the clock        joined, or delayed        joined                        time between groups
Nagle and delayed ACKs      each by itself, prompt    joined, 40 ms or a round trip time between groups
                                                      from group to group
"""

from __future__ import annotations

from enum import StrEnum

from slipstream.stream_audit.timing import Timing

FEWEST_JUDGED = 12
"""Fewer events are too few to recognize a pattern."""
FEWEST_JUDGED_PART = 0.5
JOINED = 0.3
"""A larger share of joined events in a slow stream is a pattern; lost and resent packets join fewer."""
FAST_JOINED = 0.5
"""The same for a fast stream, whose events a network's ordinary jitter joins more easily."""
WHOLE = 0.8
"""If one group has this share of a stream's events, the whole stream was buffered."""
ALIKE = 1.6
"""Two numbers are alike if neither is more than so many times the other."""
ROUND_TRIP = 1.5
"""The same for a period and a round trip; a group waits for a round trip and then for its first event."""
LATE_PACE = 2.0
"""A gateway that sends at less than half the pace is too busy for a measurement."""
DELAYED_ACK_MS = (25.0, 60.0)
"""Linux delays an acknowledgement by 40 ms."""
FEWEST_PERIODS = 5
"""Periods that a fast stream needs if the slow one arrived event by event: a long delay would join that one, too."""
FLUSH_DELAY = 0.15
"""A flush by the clock delays a slow stream's events by up to its period, Nagle's algorithm not at all."""


class Pattern(StrEnum):
    """The pattern in which events arrive."""

    PROMPT = "prompt"
    BUFFERED = "buffered"
    FLUSHED_BY_TIME = "flushed_by_time"
    NAGLE = "nagle"
    JOINED = "joined"
    """Events arrive together, in no known pattern."""
    UNKNOWN = "unknown"
    """Not enough evidence."""


def enough(timing: Timing, interval_ms: float) -> str:
    """Why this stream is not enough evidence; empty if it is enough."""
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
    """The pattern of two streams. slow_ms, fast_ms: the intervals of the requests."""
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
        return Pattern.PROMPT  # except for the network's jitter, which the evidence shows in its delays
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
    """Whether neither number is more than so many times the other; no number is like 0."""
    return 0 < one <= times * other and other <= times * one


def _largest(timing: Timing) -> float:
    """The share of the events in the largest group."""
    events = sum(group.events for group in timing.groups)
    return max(group.events for group in timing.groups) / events if events else 0.0


def _by_round_trip(period_ms: float, round_trip_ms: float) -> bool:
    """Whether groups come at the pace of acknowledgements over a long path; a short path causes no such wait."""
    return round_trip_ms >= DELAYED_ACK_MS[0] and alike(period_ms, round_trip_ms, ROUND_TRIP)
