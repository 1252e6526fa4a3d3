"""Caches the ids of segments of prompts: texts between control tokens, and parts of a long text.

A client sends the whole conversation with every turn, and all but its last messages have already been encoded. An
editor sends the file around the cursor with every keystroke. Control tokens, and the cuts of `parts`, divide a prompt
into segments that are encoded independently, so a segment's ids are the same in every prompt. The cache's key is the
tenant and the text's digest: no tenant can learn by timing what another tenant has sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import string
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

CACHE_BYTES = 32 * 1024 * 1024
"""Size of one model's cache, about five million tokens. It evicts the least recently used segments first."""
SEGMENT_BYTES = 352
"""Estimated memory of a segment in addition to its ids."""
DIGEST_BYTES = 16
CALL_BYTES = 64
"""Bytes of text that take as long to encode as the call for a text."""
PART_CHARACTERS = 500
"""Least length of a part. The last part is encoded with every keystroke; each other one costs a digest."""
BOUNDARY = re.compile("[a-z](?= i[a-z])")
"""Between two words, frequent in code and in English. The place depends on the text alone, so when an editor's window
moves, the parts soon begin in the same places again."""
SEARCHED_CHARACTERS = 32_768
"""Most characters in which the end of a part is searched, because `re` holds the interpreter lock for a search."""
PROBES = (
    *("a in", "word is it", "x = word if it", "'s in", "9a in", "éa it", "漢a in", "\n a in", "Aa in A b it"),
    *("a international", "  a in  it", "(a in)", "[a in]", "{a in}", "<a in>", "// a in it", "/* a in it */"),
    *(f"x {mark}a in it{mark} is" for mark in string.punctuation),
    *("a" * length + " in it is" for length in range(2, 9)),
)
"""Texts with boundaries in which a pattern may have longer pieces: strings, comments and groups of characters."""

Key = tuple[str, bytes]


class NeedsThread(Exception):
    """The work would hold the event loop for too long."""


class LoopAllowance:
    """What may be encoded on the event loop for one prompt, most of which is cached."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes

    def spend(self, texts: Iterable[str]) -> None:
        """Count texts that are about to be encoded. Raises NeedsThread above the allowance."""
        for text in texts:
            self._left_bytes -= len(text.encode("utf-8", "surrogatepass")) + CALL_BYTES
            if self._left_bytes < 0:
                raise NeedsThread


class SegmentCache:
    """The cached segments of one model. Safe to use from several threads, because Python's interpreter lock makes each
    operation of the dictionary atomic."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[Key, array[int]] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def all_ids(
        self, tenant: str, texts: Sequence[str], encode: Callable[[list[str]], Iterable[Sequence[int]]]
    ) -> list[Sequence[int]]:
        """The ids of each segment. `encode` computes those that are not cached, in one call."""
        keys = [(tenant, _digest(text)) for text in texts]
        found: dict[Key, array[int]] = {}
        for key in keys:
            cached = self._kept.get(key)
            if cached is not None:
                with contextlib.suppress(KeyError):  # another thread has evicted it
                    self._kept.move_to_end(key)
                found[key] = cached
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            for key, ids in zip(missing, encode(list(missing.values())), strict=True):
                found[key] = array("I", ids)
                self._keep(key, found[key])
        return [found[key] for key in keys]

    def _keep(self, key: Key, ids: array[int]) -> None:
        # for one segment at a time, because the event loop waits for the lock, too
        with self._lock:
            if key not in self._kept:
                self._kept[key] = ids
                self._size_bytes += _size_bytes(ids)
            while self._size_bytes > self._limit_bytes:
                self._size_bytes -= _size_bytes(self._kept.popitem(last=False)[1])


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def _size_bytes(ids: array[int]) -> int:
    return SEGMENT_BYTES + ids.itemsize * len(ids)


def parts(text: str, least_characters: int = PART_CHARACTERS) -> list[str]:
    """Cut a text between words. All parts but the last remain the same when the text continues."""
    cuts, start = [0], least_characters
    while (found := BOUNDARY.search(text, start, start + SEARCHED_CHARACTERS)) is not None:
        cuts.append(found.end())
        start = found.end() + least_characters
    return [text[start:end] for start, end in itertools.pairwise([*cuts, len(text)])]


def cuts_words(pre_tokenizer: Any, added: Iterable[Mapping[str, Any]], normalizer: Any = None) -> bool:
    """Whether the parts of `parts`, encoded alone, have the ids of the whole text.

    pre_tokenizer: of the `tokenizers` library. added: the definitions of the tokens that the library finds in a text
    before it divides the text. normalizer: None, or one that leaves the characters beside a boundary unchanged.

    A pattern cannot be proven to divide every text at a boundary. It is tested with texts for the usual exceptions.
    """
    if any(_crosses(token, normalizer) for token in added):
        return False

    def pieces(text: str) -> list[str]:
        return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]

    return all(
        pieces(probe) == [piece for part in parts(probe, least_characters=0) for piece in pieces(part)]
        for probe in PROBES
    )


def _crosses(token: Mapping[str, Any], normalizer: Any) -> bool:
    """Whether an added token may cross a boundary, or be another token if the text begins or ends there."""
    content = str(token["content"])
    texts = {content} if normalizer is None else {content, normalizer.normalize_str(content)}
    return any(
        re.search("[a-z] (?:i|$)", text)
        or (token.get("rstrip") and re.search("[a-z]$", text))  # takes the space after it
        or (token.get("single_word") and re.match(" (?:i|$)", text))  # does not follow a letter
        for text in texts
    )
