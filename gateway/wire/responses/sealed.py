"""`encrypted_content` of reasoning items: the reasoning's text in a form that clients send back and do not read.

It is encoded, not encrypted: the same text is in the item's `content`, for the same client. Clients that keep no
`content` bring the model's reasoning back by it.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode

from contracts.errors import InvalidField

MARK = "slip1."
MAX_BYTES = 4_000_000
"""Limit of one text."""
MAX_CHARACTERS = 8_000_000
"""Limit of all texts of one request: a kilobyte of `encrypted_content` can hold a megabyte."""


def sealed(text: str) -> str:
    """The text as `encrypted_content`."""
    return MARK + b64encode(zlib.compress(text.encode())).decode()


def opened(content: str, param: str) -> str:
    """The text. Raises InvalidField naming `param` for any other content, another provider's for example."""
    text = _opened(content.removeprefix(MARK)) if content.startswith(MARK) else None
    if text is None:
        raise InvalidField(
            f"'{param}' was not created by this deployment. Remove this reasoning item, or send its 'content' instead.",
            param=param,
        )
    return text


def _opened(encoded: str) -> str | None:
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(b64decode(encoded, validate=True), MAX_BYTES).decode()
    except (ValueError, zlib.error):
        return None
    return text if inflating.eof else None
