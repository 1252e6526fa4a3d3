"""The bytes of every id of a byte-level vocabulary."""

from __future__ import annotations

from typing import Any

from engines.tokenizer.control import gives_text


def token_bytes(definition: dict[str, Any], backend: Any) -> dict[int, bytes] | None:
    """A map from ids to bytes, without tokens that produce no text; None if the vocabulary is not byte-level.

    Source: the byte alphabet of GPT-2's encoder, in which printable bytes represent themselves and the others are
    mapped to U+0100 and up.
    """
    if (definition.get("decoder") or {}).get("type") != "ByteLevel":
        return None
    alphabet = _alphabet()
    added = {token["id"]: token for token in definition.get("added_tokens") or []}
    table: dict[int, bytes] = {}
    for text, id_ in backend.get_vocab(with_added_tokens=True).items():
        if id_ in added:
            if gives_text(added[id_]):
                table[id_] = text.encode()
            continue
        try:
            table[id_] = bytes(alphabet[character] for character in text)
        except KeyError:  # a text outside the alphabet, which the decoder passes through
            table[id_] = text.encode()
    return table


def _alphabet() -> dict[str, int]:
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet
