"""Makes texts of clients storable in PostgreSQL."""

from __future__ import annotations


def storable(text: str) -> str:
    """Remove NUL, and replace lone surrogates, so that one text cannot fail its whole batch."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
