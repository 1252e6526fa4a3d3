"""Ends reservations that no gateway has any more, once all of their journal records are in the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from gateway.limits.epoch import Epoch, organizations_key
from gateway.limits.plan import prefix_of
from gateway.limits.script import Script
from storage.valkey import Valkey
from storage.valkey_command import pack


class Record(msgspec.Struct, array_like=True):
    """An entry of `open`, in the form that reserve.lua writes."""

    epoch: str
    input_tokens: int
    output_tokens: int
    micro: int
    rules: list[str]
    day: int
    month: int


class Stray(msgspec.Struct, frozen=True):
    """A reservation that is open in Valkey. tagged: prefix of its organization's keys."""

    id: str
    tagged: str
    rules: tuple[str, ...]


_decode = msgspec.msgpack.Decoder(Record).decode


async def end_runs(valkey: Valkey, script: Script, prefix: str, instance: str, living: str) -> int:
    """End every reservation of `instance` except those of the epoch `living`. Returns their number. Raises Valkey's
    errors.

    All rows of those runs must be in the ledger, from which their budgets are recounted.
    """
    ended = 0
    key = organizations_key(prefix, instance)
    async for member, epoch, tagged in _places(valkey, key):
        if epoch != living:
            left = await _open_of(valkey, tagged, epoch)
            await end(valkey, script, left)
            ended += len(left)
            await valkey.call(script.upkeep("forget", [tagged + "epochs"], epoch))
            await valkey.call(pack(("SREM", key, member)))
    return ended


async def open_in(valkey: Valkey, prefix: str, epoch: Epoch) -> dict[str, Stray]:
    """Reservations that Valkey holds open in this epoch, by id. Raises Valkey's errors."""
    found: dict[str, Stray] = {}
    async for _, name, tagged in _places(valkey, organizations_key(prefix, epoch.instance)):
        if name == epoch.name:
            found.update((each.id, each) for each in await _open_of(valkey, tagged, name))
    return found


async def end(valkey: Valkey, script: Script, strays: Sequence[Stray]) -> None:
    """End these reservations. Raises Valkey's errors."""
    for each in strays:
        keys = [each.tagged + "epochs", each.tagged + "open", *(each.tagged + rule for rule in each.rules)]
        keys.append(f"{each.tagged}tomb:{each.id}")
        await valkey.call(script.upkeep("retire", keys, each.id, script.tomb_ms))


async def _places(valkey: Valkey, key: str) -> AsyncIterator[tuple[bytes, str, str]]:
    """Places where runs of an instance may have open reservations: member of its set, epoch, organization's prefix."""
    prefix = key.rpartition(":instance:")[0]
    for member in await valkey.call(pack(("SMEMBERS", key))):
        epoch, _, organization_id = member.decode().partition(" ")
        yield member, epoch, prefix_of(prefix, organization_id)


async def _open_of(valkey: Valkey, tagged: str, epoch: str) -> list[Stray]:
    flat = await valkey.call(pack(("HGETALL", tagged + "open")))
    records = [(name.decode(), _decode(value)) for name, value in zip(flat[::2], flat[1::2], strict=True)]
    return [Stray(name, tagged, tuple(record.rules)) for name, record in records if record.epoch == epoch]
