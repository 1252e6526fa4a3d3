"""A synchronous client of a running router's control service, for commands and tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import grpc

from contracts.errors import NotFound, RouterUnavailable
from contracts.proto import control_pb2 as pb
from contracts.proto.control_pb2_grpc import RouterControlStub
from router.control import messages
from router.core.record import Record

TIMEOUT_S = 5.0
RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


class ControlClient:
    """A client for use as `with ControlClient(address, token) as control:`. Every call raises RouterUnavailable if the
    router does not answer or refuses. address: `host:port`."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._channel = grpc.insecure_channel(address)
        self._stub = RouterControlStub(self._channel)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def fleet(self) -> pb.Fleet:
        """The fleet as the router sees it now."""
        return self._call(self._stub.DescribeFleet, pb.DescribeFleetRequest())

    def explain(self, request_id: str) -> list[Record]:
        """Every remembered decision about a request, oldest first; may be empty."""
        try:
            response = self._call(self._stub.ExplainRequest, pb.ExplainRequestRequest(request_id=request_id))
        except NotFound:
            return []
        return [messages.record(decision) for decision in response.decisions]

    def watch(self) -> Iterator[tuple[Record, int]]:
        """Decisions as they are made, each with the number missed before it. Only an error ends the stream."""
        stream = self._stub.WatchDecisions(pb.WatchDecisionsRequest(), metadata=self._metadata)
        try:
            for decision in stream:
                yield messages.record(decision), decision.missed
        except grpc.RpcError as error:
            raise self._failure(error) from None
        finally:
            stream.cancel()

    def drain(self, replica_id: str, draining: bool) -> pb.Replica:
        """Stop giving a replica new leases, or resume. Raises NotFound for an unknown replica."""
        return self._call(self._stub.DrainReplica, pb.DrainReplicaRequest(replica_id=replica_id, draining=draining))

    def _call(self, method: grpc.UnaryUnaryMultiCallable[RequestT, ResultT], request: RequestT) -> ResultT:
        try:
            return method(request, timeout=TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def _failure(self, error: grpc.RpcError) -> NotFound | RouterUnavailable:
        status, details = error.code(), error.details()
        if status is grpc.StatusCode.NOT_FOUND:
            return NotFound(str(details))
        if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return RouterUnavailable(f"The router at {self._address} does not answer; is it running?")
        return RouterUnavailable(f"The router at {self._address} refused: {details}")
