"""The router's gRPC port, with the control service, health checks (`grpc.health.v1`) and reflection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from contracts.errors import ConfigError
from contracts.proto.control_pb2_grpc import add_RouterControlServicer_to_server
from router.control.authorization import SERVICE, Authorization
from router.control.servicer import ControlServicer

GRACE_S = 0.5
OPTIONS = (
    ("grpc.so_reuseport", 0),  # two routers on one port would each receive half of the calls
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.max_concurrent_streams", 100),
)


class ControlServer:
    """The gRPC server. authorized: whether a token may read (False) or also change state (True)."""

    def __init__(self, servicer: ControlServicer, authorized: Callable[[str, bool], bool]) -> None:
        self._servicer = servicer
        self._authorized = authorized
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._health_update: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the bound port. Raises ConfigError if the port is not available."""
        server = grpc.aio.server(interceptors=(Authorization(self._authorized),), options=OPTIONS)
        add_RouterControlServicer_to_server(self._servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((SERVICE, "grpc.health.v1.Health", reflection.SERVICE_NAME), server)
        await self._set(False)
        try:
            bound = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError:
            raise ConfigError(
                f"router.control_port: cannot listen on {host}:{port}; free the port or set another",
                param="router.control_port",
            ) from None
        await server.start()
        self._server = server
        return bound

    def serving(self, yes: bool) -> None:
        """Report to health checks whether leases can be granted, which requires a known fleet."""
        self._health_update = asyncio.get_running_loop().create_task(self._set(yes))

    async def _set(self, yes: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if yes else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", SERVICE):
            await self._health.set(name, status)

    async def stop(self) -> None:
        """Report to health checks that the server no longer serves, then close."""
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(GRACE_S)
            self._server = None
