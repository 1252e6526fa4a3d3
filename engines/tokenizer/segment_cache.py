"""Caches the ids of texts between control tokens.

A client sends the whole conversation with every turn, and all but its last messages have already been encoded. Control
tokens cut a prompt into segments that are encoded independently, so a segment's ids are the same in every prompt. The
cache's key is the tenant and the text's digest: no tenant can learn by timing what another tenant has sent.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

CACHE_BYTES = 32 * 1024 * 1024
"""Size of one model's cache, about eight million tokens. It evicts the least recently used segments first."""
SEGMENT_BYTES = 256
"""Estimated memory of a segment in addition to its ids."""
DIGEST_BYTES = 16

Key = tuple[str, bytes]


class SegmentCache:
    """The cached segments of one model. Safe to use from several threads."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[Key, array[int]] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def ids(self, tenant: str, text: str, encode: Callable[[str], Sequence[int]]) -> Sequence[int]:
        """The segment's ids, which `encode` computes if they are not cached."""
        key = tenant, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        with self._lock:
            cached = self._kept.get(key)
            if cached is not None:
                self._kept.move_to_end(key)
                return cached
        ids = array("I", encode(text))
        with self._lock:
            if key not in self._kept:
                self._kept[key] = ids
                self._size_bytes += _size_bytes(ids)
            while self._size_bytes > self._limit_bytes:
                self._size_bytes -= _size_bytes(self._kept.popitem(last=False)[1])
        return ids


def _size_bytes(ids: array[int]) -> int:
    return SEGMENT_BYTES + ids.itemsize * len(ids)
