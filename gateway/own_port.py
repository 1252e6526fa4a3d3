"""Keeps gateways of other deployments off a gateway's port. The kernel distributes connections among all listeners that
share a port, so each deployment would get the other's customers.

The first gateway of a deployment reserves the port with a socket that only listeners of this account can join. The
other gateways find it reserved, and recognize their deployment's gateways by the journals in one folder.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from contracts.errors import ConfigError
from gateway.http.listener import listened_on
from gateway.metering.journal.folder import writers
from infra.local.ports import PortInUse, addresses_of, reserve_port

LONGEST_START_S = 10.0
"""Time after which a gateway that has reserved the port has locked its journal."""
LOOK_S = 0.05


async def own_port(host: str, port: int, journals: Path, *, kept: bool) -> contextlib.ExitStack:
    """Reserve the port. Returns an empty stack if another process of this deployment has reserved it. journals: the
    deployment's journal folder. kept: whether `slipstream up` reserves the port for this deployment's gateways.

    Raises ConfigError if a program of another deployment has the port.
    """
    clock = asyncio.get_running_loop().time
    end_s = clock() + LONGEST_START_S
    while True:
        try:
            return reserve_port(host, port)
        except PortInUse:
            listens = any(listened_on(address, port) for address in addresses_of(host))
            if writers(journals) or (kept and not listens):
                return contextlib.ExitStack()
            if listens or clock() > end_s:
                raise _strangers(host, port, journals, "does" if listens else "has reserved it") from None
        except ConfigError:  # `bind` reports the reason
            return contextlib.ExitStack()
        await asyncio.sleep(LOOK_S)  # polled, because another process changes it


def _strangers(host: str, port: int, journals: Path, action: str) -> ConfigError:
    return ConfigError(
        f"gateway.port: cannot listen on {host}:{port}: another program {action}, which may be another deployment's "
        f"gateway (none of this one's runs, by {journals}); stop it, or choose another port",
        param="gateway.port",
    )
