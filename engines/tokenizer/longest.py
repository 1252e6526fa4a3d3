"""Computes the longest text that one id can represent, and so a lower bound of a text's ids before it is encoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

JsonObject = dict[str, Any]
BYTES = 256
KEEPING_PRE_TOKENIZERS = frozenset({"ByteLevel", "Digits", "Metaspace", "Split", "UnicodeScripts"})
"""Pre-tokenizers that, by default, split a text without dropping any of it."""
NFC_SHRINKS = (7, 2)
"""Largest ratio of bytes before and after NFC: the 7 bytes of U+1FBE U+0308 U+0301 become the 2 of U+0390. The tests
check every character that composes."""


def longest_token_bytes(definition: JsonObject, vocabulary: dict[str, int]) -> int | None:
    """The most bytes of text that a single id can represent; None if there is no bound.

    vocabulary: includes added tokens. The result is None if text may vanish before the lookup, because of a normalizer
    that shortens without a bound, a pre-tokenizer that removes text, an unknown-token, or an added token that swallows
    adjacent spaces.
    """
    added = {token["content"]: token for token in definition.get("added_tokens") or []}
    if any(token.get("lstrip") or token.get("rstrip") for token in added.values()):
        return None
    normalizers = list(_parts(definition.get("normalizer"), "normalizers"))
    shrinking = sum(part["type"] == "NFC" for part in normalizers)
    if not all(part["type"] == "NFC" or _keeps_or_lengthens(part) for part in normalizers):
        return None
    cutters = list(_parts(definition.get("pre_tokenizer"), "pretokenizers"))
    if any(part["type"] not in KEEPING_PRE_TOKENIZERS or part.get("behavior") == "Removed" for part in cutters):
        return None
    model = definition["model"]
    if any(part["type"] == "ByteLevel" for part in cutters):
        whole = sum(len(text) == 1 and text not in added for text in vocabulary) >= BYTES
        # a character of the byte alphabet represents one byte
        lengths = [len(text.encode()) if text in added else len(text) for text in vocabulary]
    else:
        whole = bool(model.get("byte_fallback")) and all(f"<0x{byte:02X}>" in vocabulary for byte in range(BYTES))
        lengths = [len(text.encode()) for text in vocabulary]
    if not whole or model.get("type") not in ("BPE", "Unigram"):
        return None
    before, after = NFC_SHRINKS
    most: int = max(lengths)
    for _ in range(shrinking):
        most = -(-most * before // after)
    return most


def _parts(section: JsonObject | None, inner: str) -> Iterator[JsonObject]:
    """The single steps of a pipeline step, which may be a sequence."""
    if section is None:
        return
    if section["type"] == "Sequence":
        for part in section[inner]:
            yield from _parts(part, inner)
    else:
        yield section


def _keeps_or_lengthens(normalizer: JsonObject) -> bool:
    if normalizer["type"] == "Prepend":
        return True
    pattern = normalizer.get("pattern") or {}
    return (
        normalizer["type"] == "Replace"
        and "String" in pattern
        and len(normalizer["content"].encode()) >= len(pattern["String"].encode())
    )
