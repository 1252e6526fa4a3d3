"""Caches a bounded number of keys' records and refusals. It decides nothing about time or trust, and does no I/O.

Keys are found by a fingerprint that is cheap to compute and has a meaning only in this process. Everything that comes
from the database (refusals, invalidations) names a key by its stored hash. Secrets are never kept.
"""

from __future__ import annotations

from collections import OrderedDict

from gateway.auth.key_record import KeyRecord, Refusal, tenants_of


class KeyCache:
    """The most recently used `max_keys` records and `max_refusals` refusals."""

    def __init__(self, max_keys: int, max_refusals: int) -> None:
        self._max_keys = max_keys
        self._max_refusals = max_refusals
        self._records: OrderedDict[bytes, tuple[bytes, KeyRecord]] = OrderedDict()  # fingerprint -> (hash, record)
        self._fingerprints: dict[bytes, bytes] = {}  # hash -> fingerprint, of exactly the entries of _records
        self._refusals: OrderedDict[bytes, Refusal] = OrderedDict()  # hash -> refusal
        self._of_tenant: dict[str, set[bytes]] = {}  # tenant -> hashes, of exactly these records and refusals

    def __len__(self) -> int:
        return len(self._records) + len(self._refusals)

    def record(self, fingerprint: bytes) -> KeyRecord | None:
        """The record, now the most recently used, or None."""
        entry = self._records.get(fingerprint)
        if entry is None:
            return None
        self._records.move_to_end(fingerprint)
        return entry[1]

    def record_of(self, key_hash: bytes) -> KeyRecord | None:
        """The record of the key with this hash, whatever its fingerprint, or None."""
        fingerprint = self._fingerprints.get(key_hash)
        return None if fingerprint is None else self.record(fingerprint)

    def refusal(self, key_hash: bytes) -> Refusal | None:
        """The refusal, now the most recently used, or None."""
        refusal = self._refusals.get(key_hash)
        if refusal is not None:
            self._refusals.move_to_end(key_hash)
        return refusal

    def put(self, fingerprint: bytes, key_hash: bytes, answer: KeyRecord | Refusal) -> None:
        """Store the database's answer, which replaces any earlier one."""
        self.drop(key_hash)
        for tenant in tenants_of(answer):
            self._of_tenant.setdefault(tenant, set()).add(key_hash)
        if isinstance(answer, Refusal):
            self._refusals[key_hash] = answer
            if len(self._refusals) > self._max_refusals:
                self.drop(next(iter(self._refusals)))
            return
        self._records[fingerprint] = (key_hash, answer)
        self._fingerprints[key_hash] = fingerprint
        if len(self._records) > self._max_keys:
            oldest, _ = next(iter(self._records.values()))
            self.drop(oldest)

    def drop(self, key_hash: bytes) -> None:
        """Remove one key's answer."""
        answer: KeyRecord | Refusal | None = self._refusals.pop(key_hash, None)
        fingerprint = self._fingerprints.pop(key_hash, None)
        if fingerprint is not None:
            _, answer = self._records.pop(fingerprint)
        for tenant in () if answer is None else tenants_of(answer):
            hashes = self._of_tenant[tenant]
            hashes.remove(key_hash)
            if not hashes:
                del self._of_tenant[tenant]

    def drop_tenant(self, tenant: str) -> None:
        """Forget all keys of a project or organization, named as `tenants_of` does."""
        for key_hash in list(self._of_tenant.get(tenant, ())):
            self.drop(key_hash)

    def clear(self) -> None:
        self._records.clear()
        self._fingerprints.clear()
        self._refusals.clear()
        self._of_tenant.clear()
