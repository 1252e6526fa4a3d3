"""What the router says of itself, asked as an operator would."""

from __future__ import annotations

import asyncio

from contracts.errors import RouterUnavailable
from contracts.proto import router_pb2 as pb
from router.protocol.inquiry import inquire
from tests.deployment import Deployment


class RouterView:
    """One deployment's router; it keeps its address over restarts."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token

    @classmethod
    async def of(cls, deployment: Deployment) -> RouterView:
        """The router of a running deployment."""
        return cls(
            (await deployment.processes())["router"]["url"], (deployment.data / "router.reader.token").read_text()
        )

    async def describe(self) -> pb.FleetDescription | None:
        """The fleet as the router sees it; None while there is no router."""
        question = pb.GatewayMessage(describe=pb.DescribeRequest())
        try:
            return (await asyncio.to_thread(inquire, self._address, self._token, question)).fleet
        except RouterUnavailable:
            return None

    async def leases(self) -> dict[str, int]:
        """Live leases by replica; empty while there is no router."""
        described = await self.describe()
        return {replica.replica_id: replica.leases for replica in described.replicas} if described else {}
