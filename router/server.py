"""Moves messages between the gateways' streams and the core, and time and polls into it.

Owns no rule. Everything runs on one event loop; every event is decided before the next is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

import grpc
import msgspec

from contracts.errors import ConfigError, RouterUnavailable
from contracts.proto import router_pb2 as pb
from contracts.proto import router_pb2_grpc as rpc
from engines.base import Driver
from router import codec, wire
from router.config import RouterConfig
from router.core.decisions import Decision, Disconnect, Granted, ProbeNow, Refused, ReplayKvEvents, Welcomed
from router.core.dispatcher import Dispatcher
from router.core.events import Acquire, Event, GatewayDisconnected, StatePublished, Tick
from router.core.replica import Health
from router.event_log import EventLog
from router.health import Fetch, HealthPoller, Target
from router.kv_subscriber import KvSubscriptions
from router.metrics import MetricsServer, RouterMetrics
from router.policies import registry
from router.stream import GatewayStream

logger = logging.getLogger(__name__)


class RouterServer:
    """One router. `start` binds, `stop` drains; `port` is the one bound."""

    def __init__(
        self,
        config: RouterConfig,
        token: str,
        connections: Fetch,
        driver_of: Callable[[str], Driver],
    ) -> None:
        self.config = config
        self.epoch = uuid.uuid4().hex
        self.port = 0
        self.dispatcher = Dispatcher(config, registry.create(config.policy))
        self.metrics = RouterMetrics(self.dispatcher)
        self.streams: dict[int, GatewayStream] = {}
        self._authorization = wire.bearer(token).encode()
        self._poller = HealthPoller(config, connections, driver_of, self.handle)
        self._metrics_server = MetricsServer(self.metrics)
        self._event_log = EventLog(config.event_log, config.event_log_bytes) if config.event_log else None
        self._kv_events = KvSubscriptions(self.handle)
        self._connections = 0
        self._timer: asyncio.TimerHandle | None = None
        self._grpc = grpc.aio.server(options=_SERVER_OPTIONS)
        rpc.add_RouterServicer_to_server(_Servicer(self), self._grpc)

    async def start(self) -> None:
        """Listen. Raises ConfigError when a port cannot be had."""
        host, port = self.config.host, self.config.port
        try:
            self.port = self._grpc.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise ConfigError(
                f"router.port: cannot listen on {host}:{port}; free the port or set another", param="router.port"
            )
        if self.config.socket is not None:
            self._listen_on_socket(self.config.socket)
        await self._grpc.start()
        if self.config.metrics_port:
            await self._metrics_server.start(host, self.config.metrics_port)
        logger.info("router listening on %s:%d", host, self.port)

    def _listen_on_socket(self, path: str) -> None:
        try:
            self._grpc.add_insecure_port(f"unix:{path}")
        except RuntimeError:
            raise ConfigError(
                f"router.socket: cannot listen on {path}; its folder must exist and be writable, its path be shorter "
                "than 108 bytes",
                param="router.socket",
            ) from None

    async def stop(self) -> None:
        """Let decided answers leave, then close the streams: gateways ask the next router for what is still open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.drain_timeout_s):
                for stream in list(self.streams.values()):
                    await stream.flushed()
        await self._grpc.stop(grace=None)
        await self._poller.stop()
        self._kv_events.stop()
        await self._metrics_server.stop()
        if self._event_log is not None:
            self._event_log.close()
        if self._timer is not None:
            self._timer.cancel()

    def handle(self, event: Event) -> None:
        """Put one event through the core and act on what it decides."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if type(event) is Acquire:
            started = time.perf_counter()
            decisions = self.dispatcher.handle(event, now)
            self.metrics.decision_seconds.observe(time.perf_counter() - started)
        else:
            decisions = self.dispatcher.handle(event, now)
        if self._event_log is not None:
            self._event_log.write(now, event, decisions)
        for decision in decisions:
            self._act(decision)
        if type(event) is StatePublished:
            self._follow_fleet()
        self._arm(loop)

    def authorized(self, context: Any) -> bool:
        """Whether the call carries the deployment's token."""
        for key, value in context.invocation_metadata() or ():
            if key == wire.AUTHORIZATION:
                given = value.encode() if isinstance(value, str) else bytes(value)
                return hmac.compare_digest(given, self._authorization)
        return False

    async def serve_gateway(self, context: Any, hello: pb.Hello) -> str | None:
        """Carry one stream until it ends. The reason, when it was the router that wanted it to end."""
        silence_s = self.config.silence_s
        self._connections += 1
        connection = self._connections
        stream = self.streams[connection] = GatewayStream(self.config.stream_messages, self.config.batch_messages)
        self.handle(codec.hello_event(connection, hello))
        reader = asyncio.create_task(self._read(connection, stream, context), name=f"read gateway {hello.gateway_id}")
        writer = asyncio.create_task(stream.write_to(context), name=f"write gateway {hello.gateway_id}")
        try:
            ending = (reader, writer, stream.closed)
            heard = -1
            while not (await asyncio.wait(ending, timeout=silence_s, return_when=asyncio.FIRST_COMPLETED))[0]:
                if stream.heard == heard:
                    stream.close(f"nothing heard for {silence_s:g} s")
                heard = stream.heard
        finally:
            del self.streams[connection]
            self.handle(GatewayDisconnected(connection))
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
        if not stream.closed.done():
            return None
        reason = stream.closed.result()
        self.metrics.streams_closed.inc()
        logger.warning("closing the stream of gateway %s: %s", hello.gateway_id, reason)
        return reason

    def describe(self) -> pb.FleetDescription:
        """The fleet as the core sees it now."""
        replicas = [
            pb.ReplicaDescription(
                replica_id=replica.id,
                pool=replica.pool,
                url=replica.url,
                driver=replica.driver,
                healthy=replica.health is Health.HEALTHY,
                detail=replica.detail or replica.health.value,
                leases=replica.leases,
                running=replica.load.running,
                waiting=replica.load.waiting,
                prefill_tokens=max(replica.prefill_tokens, 0),
                prefix_blocks=self.dispatcher.fleet.blocks_of(replica),
                headroom_tokens=replica.headroom_tokens,
                prefill_tokens_per_s=self.dispatcher.fleet.prefill_tokens_per_s(replica),
            )
            for replica in self.dispatcher.fleet.replicas.values()
        ]
        return pb.FleetDescription(
            router_epoch=self.epoch,
            desired_state_version=self.dispatcher.fleet.version,
            replicas=replicas,
            gateways=len(self.dispatcher.connections),
            queued=self.dispatcher.queued,
        )

    def explain(self, request_id: str) -> pb.Explanation:
        """What is remembered about a request."""
        return pb.Explanation(records=msgspec.json.encode(self.dispatcher.records.of(request_id)))

    async def _read(self, connection: int, stream: GatewayStream, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            stream.heard += 1
            for part in wire.parts(message):
                if part.HasField("ping"):
                    stream.send(pb.RouterMessage(pong=pb.Pong()))
                    continue
                try:
                    event = codec.event(connection, part)
                except ValueError as error:
                    self._reject(connection, part, error)
                else:
                    self.handle(event)

    def _reject(self, connection: int, message: pb.GatewayMessage, error: ValueError) -> None:
        """A message we cannot read is a gateway of another version: say so, and leave nobody waiting."""
        logger.error("message of gateway connection %d refused: %s", connection, error)
        stream = self.streams.get(connection)
        if stream is not None and message.WhichOneof("body") == "acquire":
            stream.send(wire.shed(message.acquire.lease_id, RouterUnavailable.code, str(error), None))

    def _act(self, decision: Decision) -> None:
        self.metrics.decided(decision)
        if isinstance(decision, ProbeNow):
            self._poller.probe_now(decision.replica_id)
            return
        if isinstance(decision, ReplayKvEvents):
            self._kv_events.ask_replay(decision.replica_id, decision.first)
            return
        stream = self.streams.get(decision.connection)
        if stream is None:
            return
        if isinstance(decision, Granted | Refused):
            stream.send(codec.answer(decision))
        elif isinstance(decision, Welcomed):
            stream.send(wire.welcome(self.epoch, self.config.grace_s, decision.version))
        elif isinstance(decision, Disconnect):
            stream.close(decision.reason)

    def _follow_fleet(self) -> None:
        replicas = self.dispatcher.fleet.replicas.values()
        self._poller.follow({replica.id: Target(replica.url, replica.driver) for replica in replicas if replica.wanted})
        state = self.dispatcher.fleet.state
        wanted = () if state is None else [replica for pool in state.pools for replica in pool.replicas]
        try:
            self._kv_events.follow({one.id: (one.kv_events, one.kv_events_replay) for one in wanted if one.kv_events})
        except ConfigError as error:
            logger.error("KV events are not followed: %s", error.message)  # noqa: TRY400  says all there is to say

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        wakeup = self.dispatcher.next_wakeup()
        timer = self._timer
        if timer is not None:
            if wakeup is not None and timer.when() == wakeup:
                return
            timer.cancel()
            self._timer = None
        if wakeup is not None:
            self._timer = loop.call_at(wakeup, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.handle(Tick())


class _Servicer(rpc.RouterServicer):
    """The gRPC face: checks the token, hands over."""

    def __init__(self, server: RouterServer) -> None:
        self._server = server

    async def Connect(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        await self._require_token(context)
        first = await context.read()
        if first is grpc.aio.EOF or not (first.hello.gateway_id and first.hello.epoch):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be a hello")
        reason = await self._server.serve_gateway(context, first.hello)
        if reason is not None:
            await context.abort(grpc.StatusCode.ABORTED, reason)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.FleetDescription:  # noqa: N802
        await self._require_token(context)
        return self._server.describe()

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.Explanation:  # noqa: N802
        await self._require_token(context)
        return self._server.explain(request.request_id)

    async def _require_token(self, context: Any) -> None:
        if not self._server.authorized(context):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the deployment's token is required")


_SERVER_OPTIONS = (
    # two routers on one port would split the gateways between them
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", wire.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", wire.MAX_MESSAGE_BYTES),
)
