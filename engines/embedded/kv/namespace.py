"""Identifies the prompts that may share keys and values: prompts with one salt, and with the same adapter or none."""

from __future__ import annotations

from typing import NamedTuple


class AdaptedSalt(NamedTuple):
    """load_number: distinguishes loads, because an adapter may be reloaded with other weights under the same name."""

    salt: str
    adapter: str
    load_number: int


Namespace = str | AdaptedSalt
"""The salt alone if there is no adapter."""
