"""A consistent-hash ring of replicas, in which a key keeps its replica while other replicas are added and removed.

Loads are bounded after Mirrokni, Thorup and Zadimoghaddam 2017: a walk passes replicas that are full for their weight.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

import xxhash

from contracts.lease import LeaseRequest
from router.core.replica import Replica

POINTS = 64
"""Points on the ring for a replica of average weight."""
KEY_BLOCKS = 4
"""Blocks of the prompt that form the key of a request without affinity or session: about the part that conversations of
one kind share."""


def affinity_key(ask: LeaseRequest) -> int:
    """The ring key of a request, from its affinity, else its session, else the beginning of its prompt, else its id."""
    if ask.affinity:
        return xxhash.xxh3_64_intdigest(ask.affinity)
    if ask.session_id:
        return xxhash.xxh3_64_intdigest(ask.session_id.encode())
    hashes = ask.prefix_hashes
    if hashes:
        end = min(len(hashes), KEY_BLOCKS * 16)
        return xxhash.xxh3_64_intdigest(hashes[end - 16 : end])
    return xxhash.xxh3_64_intdigest(ask.request_id.encode())


class Ring:
    """An immutable ring; a pool that changes creates a new one."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        mean = sum(replica.weight for replica in replicas) / len(replicas) if replicas else 1.0
        points = [
            (xxhash.xxh3_64_intdigest(f"{replica.id}#{number}".encode()), replica)
            for replica in replicas
            for number in range(max(1, round(POINTS * replica.weight / mean)))
        ]
        points.sort(key=lambda point: point[0])
        self._points = [point for point, _ in points]
        self._replicas = [replica for _, replica in points]

    def clockwise(self, key: int) -> Iterator[Replica]:
        """Every replica once, the key's own first."""
        if not self._points:
            return
        start = bisect.bisect_left(self._points, key)
        seen: set[str] = set()
        for step in range(len(self._points)):
            replica = self._replicas[(start + step) % len(self._replicas)]
            if replica.id not in seen:
                seen.add(replica.id)
                yield replica
