"""Turns a recorded trace into a load: several copies at once, faster or slower, slightly different for each seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from tools.simulator.arrival import Arrival

JITTER_S = 2.0
"""Arrivals are moved by up to this, in the trace's own time."""
COPY_SHIFT_S = 60.0
"""Copies of a trace begin up to this time apart, so that its bursts do not coincide."""


def replayed(arrivals: Sequence[Arrival], speed: float, copies: int, seed: int) -> list[Arrival]:
    """`copies` of the trace as different tenants, with no prefix in common, `speed` times as fast.

    The order within a session can change only where its turns are less than twice the jitter apart.
    """
    source = random.Random(f"{seed} workload")
    made: list[Arrival] = []
    for copy in range(copies):
        shift = source.uniform(0, COPY_SHIFT_S) if copies > 1 else 0.0
        for arrival in arrivals:
            at_s = max(arrival.at_s + shift + source.uniform(-JITTER_S, JITTER_S), 0.0) / speed
            own = arrival if not copy else _apart(arrival, copy)
            session_id = f"{arrival.session_id}-{copy}" if arrival.session_id else ""
            tenant = f"{arrival.organization_id}-{copy}"
            made.append(msgspec.structs.replace(own, at_s=at_s, organization_id=tenant, session_id=session_id))
    made.sort(key=lambda arrival: arrival.at_s)
    return made


def as_tenant(arrivals: Sequence[Arrival], number: int) -> list[Arrival]:
    """The same requests from tenant `number`, which shares no prefix with another tenant."""
    return [
        msgspec.structs.replace(
            _apart(arrival, number + 1),
            organization_id=f"tenant-{number}",
            session_id=f"{arrival.session_id}-{number}" if arrival.session_id else "",
        )
        for arrival in arrivals
    ]


def _apart(arrival: Arrival, number: int) -> Arrival:
    """The same prompt, without a common prefix with the original or with another number's prompt."""
    mark = number.to_bytes(2, "big")
    blocks, answer_blocks = (
        tuple(mark + block[2:] for block in chain) for chain in (arrival.blocks, arrival.answer_blocks)
    )
    return msgspec.structs.replace(arrival, blocks=blocks, answer_blocks=answer_blocks)


def at_rate(arrivals: Sequence[Arrival], per_replica: float, replicas: int, copies: int, seed: int) -> list[Arrival]:
    """The trace at `per_replica` requests per second and replica on average."""
    natural = (len(arrivals) - 1) / max(arrivals[-1].at_s - arrivals[0].at_s, 1e-9)
    return replayed(arrivals, per_replica * replicas / (natural * copies), copies, seed)
