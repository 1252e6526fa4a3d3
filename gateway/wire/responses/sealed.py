"""`encrypted_content` of reasoning items: the reasoning's text in a form that clients send back without reading it.

It is encoded, not encrypted: the item's `content` has the same text for the same client. Clients that do not keep
`content` return the model's reasoning with it.
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
    """The reasoning's text. Raises InvalidField that names `param` for other content, such as another provider's."""
    text = _opened(content.removeprefix(MARK)) if content.startswith(MARK) else None
    if text is None:
        raise InvalidField(
            f"'{param}' was not created by this deployment. Remove this reasoning item, or send its 'content' instead.",
            param=param,
        )
    return text


def _opened(encoded: str) -> str | None:
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(b64decode(encoded, validate=True), MAX_BYTES).decode()
    except (ValueError, zlib.error):
        return None
    return text if decompressor.eof else None
