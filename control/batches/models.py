"""Checks a batch's models before its lines run: the fleet must serve them, and the batch's key may use them."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import asyncpg

from contracts.generation import Caller
from contracts.misfit import shortened
from control.batches.claims import key_hash
from control.fleet.revision import newest
from gateway.auth.directory import read_keys
from gateway.auth.key_record import KeyRecord


async def model_check(connection: asyncpg.Connection[Any], owner: Caller) -> Callable[[str], str | None]:
    """A function that returns why a model cannot be requested, or None if it can. A key that is no longer valid is no
    error of the file; the lines get that error."""
    fleet = (await newest(connection)).state
    hashed = await key_hash(connection, owner)
    key = (await read_keys(connection, [hashed])).get(hashed)
    usable = [model for model in fleet.models if not isinstance(key, KeyRecord) or key.may_use(model)]
    names = {name for model in usable for name in (model.name, *model.aliases)}
    if isinstance(key, KeyRecord):
        names |= {adapter.public_name for adapter in key.adapters if adapter.model in names}

    def error(name: str) -> str | None:
        if name in names:
            return None
        near = get_close_matches(name[:200], names, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        available = ", ".join(sorted(model.name for model in usable)) or "none yet"
        return f"The model '{shortened(name)}' does not exist for this key.{hint} Available: {available}."

    return error
