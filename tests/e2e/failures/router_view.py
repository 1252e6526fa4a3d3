"""What the router says of itself (`Describe`), asked as an operator would."""

from __future__ import annotations

from typing import Any

import grpc

from contracts.proto import router_pb2 as pb
from contracts.proto import router_pb2_grpc as rpc
from tests.deployment import Deployment
from tests.e2e.failures.processes import GUARD_S


class RouterView:
    """One deployment's router; it keeps its address over restarts."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),)

    @classmethod
    async def of(cls, deployment: Deployment) -> RouterView:
        """The router of a running deployment."""
        return cls((await deployment.processes())["router"]["url"], (deployment.data / "token").read_text())

    async def describe(self) -> pb.FleetDescription | None:
        """The fleet as the router sees it; None while there is no router."""
        async with grpc.aio.insecure_channel(self._address) as channel:
            stub: Any = rpc.RouterStub(channel)
            try:
                described: pb.FleetDescription = await stub.Describe(
                    pb.DescribeRequest(), metadata=self._metadata, timeout=GUARD_S
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    return None
                raise
            return described

    async def leases(self) -> dict[str, int]:
        """Live leases by replica; empty while there is no router."""
        described = await self.describe()
        return {replica.replica_id: replica.leases for replica in described.replicas} if described else {}
