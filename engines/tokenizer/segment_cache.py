"""Caches the ids of segments of prompts: texts between control tokens, and parts of a long text.

A client sends the whole conversation with every turn, and all but its last messages have already been encoded. An
editor sends the file around the cursor with every keystroke. Control tokens, and the cuts of `parts`, divide a prompt
into segments that are encoded independently, so a segment's ids are the same in every prompt. The cache's key is the
tenant and the text's digest: no tenant can learn by timing what another tenant has sent.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

CACHE_BYTES = 32 * 1024 * 1024
"""Size of one model's cache, about eight million tokens. It evicts the least recently used segments first."""
SEGMENT_BYTES = 256
"""Estimated memory of a segment in addition to its ids."""
DIGEST_BYTES = 16
PART_CHARACTERS = 500
"""Least length of a part. The last part is encoded with every keystroke; each other one costs a digest."""
BOUNDARY = re.compile("[a-z](?= i[a-z])")
"""Between two words, frequent in code and in English. The place depends on the text alone, so when an editor's window
moves, the parts soon begin in the same places again."""
PROBES = ("a in", "word is it", "x = word if it", "'s in", "9a in", "éa it", "\n a in", "(a in)")

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


def parts(text: str) -> list[str]:
    """Cut a text between words. All parts but the last remain the same when the text continues."""
    cuts = [0]
    while (found := BOUNDARY.search(text, cuts[-1] + PART_CHARACTERS)) is not None:
        cuts.append(found.end())
    return [text[start:end] for start, end in itertools.pairwise([*cuts, len(text)])]


def cuts_words(pre_tokenizer: Any, added: Iterable[str]) -> bool:
    """Whether the parts of `parts`, encoded alone, have the ids of the whole text.

    pre_tokenizer: a pre-tokenizer of the `tokenizers` library that treats the beginning of a part like that of a whole
    text. added: the texts that become tokens before it divides the text.
    """
    if any(re.search("[a-z] (?:i|$)", text) for text in added):
        return False
    for probe in PROBES:
        begins = {begin for _, (begin, end) in pre_tokenizer.pre_tokenize_str(probe) if end > begin}
        for found in BOUNDARY.finditer(probe):
            # the pieces of some vocabularies do not contain the space
            if begins.isdisjoint({found.end(), found.end() + 1}):
                return False
    return True
