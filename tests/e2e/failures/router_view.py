"""What the router says of itself, asked as an operator would."""

from __future__ import annotations

import asyncio

from contracts import settings
from contracts.errors import RouterUnavailable
from contracts.proto import control_pb2 as pb
from infra.local.folders import DataFolder
from router.control.client import ControlClient
from slipstream.settings import Settings
from tests.deployment import Deployment


class RouterView:
    """One deployment's router; it keeps its address over restarts."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token

    @classmethod
    def of(cls, deployment: Deployment) -> RouterView:
        """The router of a running deployment."""
        # not from the environment too: variables of tests that begin as settings do are none
        running = settings.load(Settings, DataFolder(deployment.data).settings_file, {})
        return cls(running.control_address, (deployment.data / "router.reader.token").read_text())

    async def describe(self) -> pb.Fleet | None:
        """The fleet as the router sees it; None while there is no router."""
        with ControlClient(self._address, self._token) as control:
            try:
                return await asyncio.to_thread(control.fleet)
            except RouterUnavailable:
                return None

    async def leases(self) -> dict[str, int]:
        """Live leases by replica; empty while there is no router."""
        described = await self.describe()
        pools = described.pools if described else ()
        return {replica.id: replica.leases for pool in pools for replica in pool.replicas}
