"""Answers the control service's calls from the router's core."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc.aio

from contracts.proto import control_pb2 as pb
from contracts.proto.control_pb2_grpc import RouterControlServicer
from router.control import messages
from router.control.watchers import Watchers
from router.core.dispatcher import Dispatcher
from router.core.events import DrainReplica, Event

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


class ControlServicer(RouterControlServicer):
    """The calls of `contracts/proto/control.proto`. handle: passes an event to the core."""

    def __init__(self, dispatcher: Dispatcher, epoch: str, handle: Callable[[Event], None], watchers: Watchers) -> None:
        self._dispatcher = dispatcher
        self._epoch = epoch
        self._handle = handle
        self._watchers = watchers

    async def DescribeFleet(self, request: pb.DescribeFleetRequest, context: Context) -> pb.Fleet:  # noqa: N802
        return messages.fleet(self._dispatcher, self._epoch)

    async def ExplainRequest(  # noqa: N802
        self, request: pb.ExplainRequestRequest, context: Context
    ) -> pb.ExplainRequestResponse:
        records = self._dispatcher.records.of(request.request_id)
        if not records:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no decision is on record for {request.request_id}")
        return pb.ExplainRequestResponse(decisions=[messages.decision(record) for record in records])

    async def WatchDecisions(  # noqa: N802
        self, request: pb.WatchDecisionsRequest, context: Context
    ) -> AsyncIterator[pb.Decision]:
        async for record, missed in self._watchers.watch():
            yield messages.decision(record, missed)

    async def DrainReplica(self, request: pb.DrainReplicaRequest, context: Context) -> pb.Replica:  # noqa: N802
        replica = self._dispatcher.fleet.replicas.get(request.replica_id)
        if replica is None or not replica.wanted:
            known = ", ".join(sorted(one.id for one in self._dispatcher.fleet.replicas.values() if one.wanted))
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no replica {request.replica_id!r}; replicas: {known or 'none'}"
            )
            raise AssertionError("abort raises")
        self._handle(DrainReplica(replica.id, request.draining))
        return messages.replica(self._dispatcher, replica)
