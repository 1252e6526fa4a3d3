"""Ids of texts between control tokens that were encoded before.

A conversation is sent whole with every turn, and all but its last messages have been encoded already. Control tokens
cut a prompt into segments that are encoded independently, so a segment's ids are the same in every prompt. Kept by the
text's digest and by tenant: nobody learns by timing what another tenant has sent.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

CACHE_BYTES = 32 * 1024 * 1024
"""Of one model: eight million tokens. The least recently used segments go first."""
SEGMENT_BYTES = 256
"""Memory of a segment besides its ids."""
DIGEST_BYTES = 16

Key = tuple[str, bytes]


class SegmentCache:
    """Safe to use from several threads."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[Key, array[int]] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def ids(self, tenant: str, text: str, encode: Callable[[str], Sequence[int]]) -> Sequence[int]:
        """The segment's ids, which `encode` makes where they are not kept."""
        key = tenant, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
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
