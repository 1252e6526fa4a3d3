"""The prompts that may share keys and values: those of one salt, computed with the same adapter or with none."""

from __future__ import annotations

from typing import NamedTuple


class AdaptedSalt(NamedTuple):
    """load_number: an adapter that is loaded again may have other weights under the same name."""

    salt: str
    adapter: str
    load_number: int


Namespace = str | AdaptedSalt
"""The salt alone where there is no adapter."""
