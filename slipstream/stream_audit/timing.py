"""Compares the arrival of a stream's events with their sending. Pure.

It uses only differences of one clock: between two arrivals the client's, between two sendings the gateway's. So the
clocks' values do not matter. It assumes that both run equally fast: quartz differs by 0.1 ms in a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from slipstream.stream_audit.measured import Received, Stall, Stream

JOINED_PART = 0.25
"""If the time between two arrivals is less than this share of the time between the sendings, one of the events was
delayed."""
REGULAR, REGULAR_PART = 0.3, 0.6
"""A period within this fraction of the median is regular, and this share of the periods must be."""
STALL_PART = 0.25
"""A stall of the client that is longer than this share of the interval can make events seem joined."""


class Group(msgspec.Struct, frozen=True):
    """Events that arrived together."""

    arrived_s: float
    events: int
    bytes: int


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The arrival of a stream's events."""

    judged: int
    """Events that have a predecessor and arrived while the client ran."""
    joined: int
    """Judged events that arrived together with their predecessor."""
    excused: int
    """Events left out because the client did not run."""
    joined_chunks: int
    """Joined events that came in one HTTP chunk with their predecessor."""
    groups: tuple[Group, ...]
    delays_ms: tuple[float, ...]
    """Each event's delay compared with the fastest event of the stream."""
    sent_interval_ms: float
    """The median time between two sendings, by the gateway's clock."""

    @property
    def joined_part(self) -> float:
        """The share of the judged events that were joined, 0 to 1."""
        return self.joined / self.judged if self.judged else 0.0

    @property
    def typical_group(self) -> float:
        """The number of events in a group: the median over events, not over groups."""
        return median([group.events for group in self.groups for _ in range(group.events)]) if self.groups else 0.0

    @property
    def group_bytes(self) -> float:
        """The median size of the groups of several events; 0 without one."""
        sizes = [group.bytes for group in self._complete]
        return median(sizes) if sizes else 0.0

    @property
    def period_ms(self) -> float:
        """The median time from one group of several events to the next; 0 with fewer than two groups."""
        return median(self.periods_ms) if self.periods_ms else 0.0

    @property
    def regular(self) -> bool:
        """Whether most groups follow their predecessor after about the same time: groups by jitter do not."""
        median_ms = self.period_ms
        near = sum(abs(period_ms - median_ms) <= REGULAR * median_ms for period_ms in self.periods_ms)
        return bool(self.periods_ms) and near >= REGULAR_PART * len(self.periods_ms)

    @property
    def periods_ms(self) -> list[float]:
        """The times from each group of several events to the next."""
        return [(later.arrived_s - earlier.arrived_s) * 1e3 for earlier, later in pairwise(self._complete)]

    @property
    def _complete(self) -> list[Group]:
        """Groups of several events, without the last one, which the stream's end may have flushed, unless it is all."""
        several = [group for group in self.groups if group.events > 1]
        return [group for group in several if group is not self.groups[-1]] or several

    def delay_ms(self, part: float) -> float:
        """The delay within which this share of the events arrived."""
        ordered = sorted(self.delays_ms)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def timing_of(stream: Stream) -> Timing:
    """The timing of a stream."""
    received = stream.received
    stalls = [stall for stall in stream.stalls if stall.until_s - stall.from_s > STALL_PART * stream.interval_ms / 1e3]
    stalled = [_within(event, stalls) for event in received]
    judged = joined = joined_chunks = 0
    together: list[bool] = []
    for position in range(1, len(received)):
        earlier, later = received[position - 1], received[position]
        is_joined = later.arrived_s - earlier.arrived_s < JOINED_PART * (later.sent_us - earlier.sent_us) / 1e6
        together.append(is_joined)
        if not stalled[position - 1] and not stalled[position]:
            judged += 1
            joined += is_joined
            joined_chunks += is_joined and later.chunk == earlier.chunk
    first_sent_us = received[0].sent_us if received else 0
    lateness_ms = [event.arrived_s * 1e3 - (event.sent_us - first_sent_us) / 1e3 for event in received]
    fastest_ms = min(lateness_ms, default=0.0)
    gaps_ms = [(later.sent_us - earlier.sent_us) / 1e3 for earlier, later in pairwise(received)]
    return Timing(
        judged=judged,
        joined=joined,
        excused=max(0, len(received) - 1 - judged),
        joined_chunks=joined_chunks,
        groups=_groups(received, together),
        delays_ms=tuple(late_ms - fastest_ms for late_ms in lateness_ms),
        sent_interval_ms=median(gaps_ms) if gaps_ms else 0.0,
    )


def _within(event: Received, stalls: Sequence[Stall]) -> bool:
    return any(stall.from_s <= event.arrived_s <= stall.until_s for stall in stalls)


def _groups(received: Sequence[Received], together: Sequence[bool]) -> tuple[Group, ...]:
    """The groups. together: for each event but the first, whether it belongs to its predecessor's group."""
    groups: list[Group] = []
    for event, joins in zip(received, [False, *together], strict=False):
        if joins:
            last = groups[-1]
            groups[-1] = Group(last.arrived_s, last.events + 1, last.bytes + event.bytes)
        else:
            groups.append(Group(event.arrived_s, 1, event.bytes))
    return tuple(groups)
