"""Calls the router's control service, on the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from contracts.errors import RouterUnavailable
from control.router_view.live_fleet import LiveFleet
from control.router_view.placement import Placement, placement_of

if TYPE_CHECKING:
    import grpc.aio

TIMEOUT_S = 2.0
SILENT = "does not answer; is it running, and is gateway.router.control_address its control service?"
AWAY_S = 5.0
"""Pause of all calls after the router did not answer: callers hold a connection to the database."""


class RouterControl:
    """One per gateway. It connects on the first call, as most gateways never make one."""

    def __init__(self, address: str, token: str) -> None:
        """address: `host:port` of the control service. token: a reader's token."""
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._channel: grpc.aio.Channel | None = None
        self._away_until_s = 0.0

    async def stop(self) -> None:
        """Close the connection. Idempotent."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def live_fleet(self) -> LiveFleet:
        """The current fleet. Raises RouterUnavailable, which names the router's address."""
        from contracts.proto import control_pb2 as pb  # costs a fifth of a second and 20 MB with grpc

        reply = await self._asked("DescribeFleet", pb.DescribeFleetRequest())
        assert reply is not None  # a fleet always exists
        # protobuf's JSON has 64-bit numbers as strings, and omits absent fields
        for pool in reply["pools"]:
            for replica in pool["replicas"]:
                replica.setdefault("headroom_tokens", None)
        return msgspec.convert({**reply, "version": reply["desired_state_version"]}, LiveFleet, strict=False)

    async def placements(self, request_id: str) -> list[Placement]:
        """The router's records of a request, oldest attempt first. Raises like `live_fleet`."""
        from contracts.proto import control_pb2 as pb

        reply = await self._asked("ExplainRequest", pb.ExplainRequestRequest(request_id=request_id))
        return [] if reply is None else [placement_of(each) for each in reply["decisions"]]

    async def _asked(self, method: str, request: Any) -> dict[str, Any] | None:
        """The response in its JSON form; None if the router does not know the object."""
        import grpc.aio
        from google.protobuf.json_format import MessageToDict

        from contracts.proto.control_pb2_grpc import RouterControlStub

        clock = asyncio.get_running_loop().time
        if clock() < self._away_until_s:
            raise self._unavailable(SILENT, self._away_until_s - clock())
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._address)
        stub: Any = RouterControlStub(self._channel)
        try:
            answer = await getattr(stub, method)(request, timeout=TIMEOUT_S, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                self._away_until_s = clock() + AWAY_S
                raise self._unavailable(SILENT, AWAY_S) from None
            raise self._unavailable(f"refused: {error.details()}", 1.0) from None
        reply: dict[str, Any] = MessageToDict(
            answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return reply

    def _unavailable(self, why: str, retry_after_s: float) -> RouterUnavailable:
        return RouterUnavailable(f"The router at {self._address} {why}", retry_after_s=retry_after_s)
