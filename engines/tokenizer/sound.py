"""Checks that text is valid: JSON can contain half of a surrogate pair, which is not a character and has no bytes."""

from __future__ import annotations

from contracts.errors import InvalidField


def require_sound(text: str) -> int:
    """Number of the text's bytes in UTF-8. Raises InvalidField if it contains half of a surrogate pair."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidField(f"The text holds an unpaired surrogate at position {error.start}.") from None
