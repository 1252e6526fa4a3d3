"""Requires a token for the control service; health checks and reflection are open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc.aio

from contracts.proto.control_pb2 import DESCRIPTOR

SERVICE = DESCRIPTOR.services_by_name["RouterControl"].full_name
CHANGING = frozenset({f"/{SERVICE}/DrainReplica"})
"""Calls that change state, for which a token that may only read is refused."""

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


class Authorization(grpc.aio.ServerInterceptor):
    """Refuses calls without a valid token. authorized: whether a token may read (False) or also change state (True)."""

    def __init__(self, authorized: Callable[[str, bool], bool]) -> None:
        self._authorized = authorized

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(f"/{SERVICE}/"):
            return handler
        value = dict(handler_call_details.invocation_metadata or ()).get("authorization", "")
        scheme, _, token = (value if isinstance(value, str) else "").partition(" ")
        if scheme.lower() == "bearer" and self._authorized(token, method in CHANGING):
            return handler
        return _refusing(handler)


def _refusing(handler: Handler) -> Handler:
    reason = "send the deployment's token as metadata: authorization: Bearer <token>"

    async def refuse(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)

    make = grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    return make(refuse, handler.request_deserializer, handler.response_serializer)
