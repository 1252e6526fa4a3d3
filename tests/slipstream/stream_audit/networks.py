"""What a stream's arrivals look like behind each kind of network, by the naive model of that network.

Clocks of client and gateway differ by anything; the gateway's pace jitters, as a busy machine's does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from contracts.stream_audit import Opening
from slipstream.stream_audit.measure import Plan
from slipstream.stream_audit.measured import Connection, Measured, Received, Stall, Stream

EVENT_BYTES = 208
PLAN = Plan()
Network = Callable[[Sequence[float], random.Random], list[float]]
"""Moments of sending to moments of arrival, in seconds."""


def direct(sent_s: Sequence[float], noise: random.Random) -> list[float]:
    """A wire and ordinary jitter, a tenth of the fast pace."""
    arrived: list[float] = []
    for moment_s in sent_s:
        arrived.append(max(moment_s + 0.02 + noise.random() * 0.001, arrived[-1] if arrived else 0.0))
    return arrived


def jittery(mean_s: float) -> Network:
    """As a bad wireless link: each event may be late, and those behind it wait."""

    def pass_on(sent_s: Sequence[float], noise: random.Random) -> list[float]:
        arrived: list[float] = []
        for moment_s in sent_s:
            late_s = noise.expovariate(1 / mean_s)
            arrived.append(max(moment_s + late_s, arrived[-1] if arrived else 0.0))
        return arrived

    return pass_on


def whole(sent_s: Sequence[float], noise: random.Random) -> list[float]:
    """Everything at the end."""
    return [sent_s[-1] + 0.02] * len(sent_s)


def buffer(size: int) -> Network:
    """So many bytes at a time, and the rest at the end."""

    def pass_on(sent_s: Sequence[float], noise: random.Random) -> list[float]:
        events = size // EVENT_BYTES
        return [
            sent_s[min(len(sent_s) - 1, position // events * events + events - 1)] for position in range(len(sent_s))
        ]

    return pass_on


def flush(period_s: float) -> Network:
    """What has come, each so many seconds."""

    def pass_on(sent_s: Sequence[float], noise: random.Random) -> list[float]:
        begin_s = sent_s[0] - noise.random() * period_s
        return [begin_s + ((moment_s - begin_s) // period_s + 1) * period_s for moment_s in sent_s]

    return pass_on


def nagle(acknowledged_s: float, round_trip_s: float = 0.0) -> Network:
    """A packet leaves when the one before it is acknowledged, so long after it arrived."""

    def pass_on(sent_s: Sequence[float], noise: random.Random) -> list[float]:
        arrived, free_s, leaves_s = [], 0.0, 0.0
        for moment_s in sent_s:
            if moment_s > leaves_s:  # else it goes with what already waits
                leaves_s = max(moment_s, free_s)
                free_s = leaves_s + acknowledged_s + round_trip_s
            arrived.append(leaves_s + round_trip_s / 2)
        return arrived

    return pass_on


def stream(
    network: Network, events: int, interval_ms: int, seed: int, *, stalls: tuple[Stall, ...] = (), **more: object
) -> Stream:
    """A whole stream through a network. more: other fields."""
    noise = random.Random(seed)
    sent_s = [1.0]
    while len(sent_s) < events:
        sent_s.append(sent_s[-1] + interval_ms / 1e3 * (1 + noise.random() * 0.2))
    skew_s = noise.uniform(-1e6, 1e6)
    arrived_s = network(sent_s, noise)
    received = tuple(
        Received(number, round(sent * 1e6), arrived + skew_s, EVENT_BYTES, number)
        for number, (sent, arrived) in enumerate(zip(sent_s, arrived_s, strict=True))
    )
    shifted = tuple(Stall(stall.from_s + skew_s, stall.until_s + skew_s) for stall in stalls)
    fields: dict[str, object] = {
        "events": events,
        "interval_ms": interval_ms,
        "status": 200,
        "http_version": "1.1",
        "headers": {**SENT_HEADERS},
        "opening": opening(),
        "received": received,
        "stalls": shifted,
        "new_connection": False,
        "asked_s": received[0].arrived_s - 0.005,
        "ended_s": received[-1].arrived_s,
        "complete": True,
    }
    return msgspec.convert({**fields, **more}, Stream)


SENT_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "x-request-id": "req_1",
    "server-timing": "auth;dur=0.5, limit;dur=1.5",
}


def opening(**more: object) -> Opening:
    """As of a request without anything between."""
    usual: dict[str, object] = {
        "request_id": "req_1",
        "instance": "a",
        "request_number": 7,
        "http_version": "1.1",
        "client_request_id": "audit-1",
        "accept_encoding": "gzip, deflate",
        "closes": False,
        "request_headers": (),
        "headers": {**SENT_HEADERS, "x-accel-buffering": "no"},
    }
    return msgspec.convert({**usual, **more}, Opening)


def measured(network: Network = direct, seed: int = 1, *, connect_ms: float = 0.5, **more: object) -> Measured:
    """A whole audit through one network. more: other fields."""
    short = tuple(stream(direct, 1, PLAN.slow_interval_ms, seed, new_connection=number == 0) for number in range(4))
    fields: dict[str, object] = {
        "url": "http://gateway",
        "client_request_id": "audit-1",
        "connection": Connection(address="192.0.2.1", dns_ms=2.0, connect_ms=connect_ms, tls=None),
        "short": short,
        "slow": stream(network, PLAN.slow_events, PLAN.slow_interval_ms, seed),
        "fast": stream(network, PLAN.fast_events, PLAN.fast_interval_ms, seed + 1),
    }
    return msgspec.convert({**fields, **more}, Measured)
