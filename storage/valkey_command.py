"""Packs Redis commands."""

from __future__ import annotations

from collections.abc import Sequence

import hiredis


def pack(words: Sequence[str | int | bytes]) -> bytes:
    """A command in the wire protocol."""
    packed: bytes = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub knows only one-tuples
    return packed
