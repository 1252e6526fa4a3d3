"""What is done when Valkey says that it does not know the scripts, though every connection begins with them: somebody
flushed them, or another server answers at the same address. They are sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hiredis

from gateway.limits.valkey import Valkey


def forgotten(reply: object) -> bool:
    """Whether a reply, or an error raised for it, says that a script is not known."""
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT")


def send_again(valkey: Valkey, loads: Sequence[bytes]) -> None:
    """loads: packed, as `Script.loads`. Raises ConnectionLost."""
    for load in loads:
        valkey.send(load)


async def call(valkey: Valkey, loads: Sequence[bytes], command: bytes) -> Any:
    """The reply to a script's call. Raises what `Valkey.call` raises."""
    try:
        return await valkey.call(command)
    except hiredis.ReplyError as error:
        if not forgotten(error):
            raise
        send_again(valkey, loads)
        return await valkey.call(command)
