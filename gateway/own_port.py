"""Keeps a gateway's port from gateways of other deployments: the kernel distributes connections among all listeners
that share a port, so each would get customers of the other.

The first gateway of a deployment reserves the port, with a socket that only listeners of this account can join. The
others find it reserved, and know their deployment's gateways by their journals, which lie in one folder.
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
"""The gateway that has reserved the port holds its journal by then."""
LOOK_S = 0.05


async def own_port(host: str, port: int, journals: Path, *, kept: bool) -> contextlib.ExitStack:
    """Returns the reservation, empty where another process of this deployment has it. journals: of this deployment.
    kept: `slipstream up` reserves the port for this deployment's gateways.

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
        except ConfigError:  # the reason is `bind`'s to tell
            return contextlib.ExitStack()
        await asyncio.sleep(LOOK_S)  # another process's state


def _strangers(host: str, port: int, journals: Path, what: str) -> ConfigError:
    return ConfigError(
        f"gateway.port: cannot listen on {host}:{port}: another program {what}, which may be another deployment's "
        f"gateway (none of this one's runs, by {journals}); stop it, or choose another port",
        param="gateway.port",
    )
