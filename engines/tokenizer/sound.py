"""Checks that text is valid: JSON can carry half a surrogate pair, which is no character and has no bytes."""

from __future__ import annotations

from contracts.errors import InvalidField


def require_sound(text: str) -> int:
    """The text's bytes in UTF-8. Raises InvalidField where it holds half a surrogate pair."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidField(f"The text holds an unpaired surrogate at position {error.start}.") from None
