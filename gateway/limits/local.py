"""The limiter's rules in a dictionary: script.lua's naive twin in tests, and its stand-in while Valkey is gone.

Pure: the time is an argument. One instance serves one process; nothing here is shared or stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.limits.bucket import Bucket, Decision, Kind, Status

CONCURRENCY_WAIT_MS = 1_000
"""When a running request ends is unknown; this is what the client is told to wait. As in script.lua."""


class LocalLimiter:
    """Same verbs, arithmetic and answers as script.lua; what each verb promises is written there."""

    def __init__(self, lease_ms: int, record_ms: int) -> None:
        self._lease_ms = lease_ms
        self._record_ms = record_ms
        self._rates: dict[str, tuple[int, int, int]] = {}
        """Bucket key to (units left, at ms, full again at ms)."""
        self._leases: dict[str, dict[str, int]] = {}
        """Bucket key to reservation id to the ms its lease ends."""
        self._records: dict[str, tuple[int, tuple[int, ...]]] = {}
        """Reservation id to (forgotten at ms, amounts); no amounts: settled."""

    def reserve(self, now_ms: int, buckets: Sequence[Bucket], amounts: Sequence[int], reservation_id: str) -> Decision:
        """Take `amounts`, one per bucket, from all buckets or from none."""
        levels = [self._stamped_level(now_ms, bucket) for bucket in buckets]
        known = self._recall(now_ms, reservation_id)
        if known is not None:
            return Decision(Status.ADMITTED if known else Status.SETTLED, 0, 0, tuple(levels))
        pairs = list(zip(buckets, amounts, strict=True))
        for number, (bucket, amount) in enumerate(pairs, 1):
            if bucket.kind is Kind.RATE and amount > bucket.limit:
                return Decision(Status.TOO_EXPENSIVE, number, 0, tuple(levels))
        waits_ms = [_wait_ms(bucket, amount, level) for (bucket, amount), level in zip(pairs, levels, strict=True)]
        longest_ms = max(waits_ms)
        if longest_ms > 0:
            return Decision(Status.REFUSED, waits_ms.index(longest_ms) + 1, longest_ms, tuple(levels))
        for index, (bucket, amount) in enumerate(pairs):
            if bucket.kind is Kind.RATE:
                levels[index] -= amount * bucket.period_ms
                self._store(now_ms, bucket, levels[index])
            else:
                levels[index] += 1
                self._leases.setdefault(bucket.key, {})[reservation_id] = now_ms + self._lease_ms
        self._records[reservation_id] = (now_ms + self._record_ms, tuple(amounts))
        return Decision(Status.ADMITTED, 0, 0, tuple(levels))

    def settle(self, now_ms: int, buckets: Sequence[Bucket], used: Sequence[int], reservation_id: str) -> bool:
        """Correct the reservation to what was `used`; False when it is unknown or was settled before."""
        reserved = self._recall(now_ms, reservation_id)
        for index, bucket in enumerate(buckets):
            if bucket.kind is Kind.CONCURRENCY:
                self._leases.get(bucket.key, {}).pop(reservation_id, None)
            elif reserved:
                units = self._stamped_level(now_ms, bucket) + (reserved[index] - used[index]) * bucket.period_ms
                self._store(now_ms, bucket, min(bucket.capacity_units, units))
        self._records[reservation_id] = (now_ms + self._lease_ms, ())
        return bool(reserved)

    def renew(self, now_ms: int, buckets: Sequence[Bucket], reservation_ids: Iterable[str]) -> int:
        """Extend the leases of reservations that are not settled; how many those are."""
        renewed = 0
        for reservation_id in reservation_ids:
            reserved = self._recall(now_ms, reservation_id)
            if reserved == ():
                continue
            for bucket in buckets:
                if bucket.kind is Kind.CONCURRENCY:
                    self._leases.setdefault(bucket.key, {})[reservation_id] = now_ms + self._lease_ms
            if reserved:
                self._records[reservation_id] = (now_ms + self._record_ms, reserved)
            renewed += 1
        return renewed

    def level(self, now_ms: int, bucket: Bucket) -> int:
        """Units left of a rate bucket, or requests running of a concurrency one."""
        if bucket.kind is Kind.CONCURRENCY:
            return sum(ends_ms > now_ms for ends_ms in self._leases.get(bucket.key, {}).values())
        stored = self._rates.get(bucket.key)
        if stored is None:
            return bucket.capacity_units
        units, at_ms, _ = stored
        return min(bucket.capacity_units, units + max(0, now_ms - at_ms) * bucket.limit)

    def sweep(self, now_ms: int) -> None:
        """Forget whatever no longer changes an answer, so that idle keys take no memory."""
        self._rates = {key: stored for key, stored in self._rates.items() if stored[2] > now_ms}
        self._records = {key: record for key, record in self._records.items() if record[0] > now_ms}
        for key, leases in list(self._leases.items()):
            live = {held: ends_ms for held, ends_ms in leases.items() if ends_ms > now_ms}
            if live:
                self._leases[key] = live
            else:
                del self._leases[key]

    def __len__(self) -> int:
        """Values held."""
        return len(self._rates) + len(self._records) + sum(map(len, self._leases.values()))

    def _recall(self, now_ms: int, reservation_id: str) -> tuple[int, ...] | None:
        forgotten_ms, amounts = self._records.get(reservation_id, (now_ms, ()))
        return amounts if forgotten_ms > now_ms else None

    def _stamped_level(self, now_ms: int, bucket: Bucket) -> int:
        level = self.level(now_ms, bucket)
        if bucket.kind is Kind.RATE and self._rates.get(bucket.key, (0, now_ms, 0))[1] > now_ms:
            self._store(now_ms, bucket, level)  # clock set back: refusals alone would never stamp it
        return level

    def _store(self, now_ms: int, bucket: Bucket, units: int) -> None:
        full_in_ms = -((units - bucket.capacity_units) // bucket.limit)
        self._rates[bucket.key] = (units, now_ms, now_ms + full_in_ms)


def _wait_ms(bucket: Bucket, amount: int, level: int) -> int:
    if bucket.kind is Kind.CONCURRENCY:
        return CONCURRENCY_WAIT_MS if level + 1 > bucket.limit else 0
    return max(0, -((level - amount * bucket.period_ms) // bucket.limit))
