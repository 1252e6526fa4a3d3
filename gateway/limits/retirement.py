"""Ends what dead runs of a gateway left open, once the ledger knows what each of their requests cost."""

from __future__ import annotations

import hiredis
import msgspec

from gateway.limits.command import pack
from gateway.limits.epoch import organizations_key
from gateway.limits.plan import prefix_of
from gateway.limits.script import Script
from gateway.limits.spending import Spending
from gateway.limits.valkey import Valkey


class Record(msgspec.Struct, array_like=True):
    """An entry of `open`, as reserve.lua writes it."""

    epoch: str
    input_tokens: int
    output_tokens: int
    micro: int
    rules: list[str]
    day: int
    month: int


_decode = msgspec.msgpack.Decoder(Record).decode


async def end_runs(valkey: Valkey, script: Script, spending: Spending, prefix: str, instance: str, living: str) -> int:
    """End every reservation of `instance` but those of the epoch `living`; how many. Raises what the two stores raise.

    Everything that those runs wrote must be in the ledger: what is in no row there cost nothing.
    """
    key, ended = organizations_key(prefix, instance), 0
    for member in await _call(valkey, script, pack(("SMEMBERS", key))):  # type: ignore[attr-defined]
        epoch, _, organization_id = member.decode().partition(" ")
        if epoch == living:
            continue
        tagged = prefix_of(prefix, organization_id)
        flat = await _call(valkey, script, pack(("HGETALL", tagged + "open")))
        names, values = flat[::2], flat[1::2]  # type: ignore[index]
        records = {name.decode(): _decode(value) for name, value in zip(names, values, strict=True)}
        left = {name: record for name, record in records.items() if record.epoch == epoch}
        amounts = await spending.amounts_micro(list(left)) if left else {}
        for name, record in left.items():
            keys = [
                tagged + "epochs",
                tagged + "open",
                *(tagged + rule for rule in record.rules),
                f"{tagged}tomb:{name}",
            ]
            await _call(valkey, script, script.upkeep("retire", keys, name, amounts.get(name, 0), script.tomb_ms))
            ended += 1
        await _call(valkey, script, script.upkeep("forget", [tagged + "epochs"], epoch))
        await _call(valkey, script, pack(("SREM", key, member)))
    return ended


async def _call(valkey: Valkey, script: Script, command: bytes) -> object:
    try:
        return await valkey.call(command)
    except hiredis.ReplyError as error:
        if not str(error).startswith("NOSCRIPT"):
            raise
        for load in script.loads:
            valkey.send(load, lambda _: None)
        return await valkey.call(command)
