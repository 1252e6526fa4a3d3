"""Texts of clients, as PostgreSQL takes them."""

from __future__ import annotations


def storable(text: str) -> str:
    """Without NUL and halves of surrogate pairs: one text must not lose its whole batch."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
