"""Passes messages between the gateways' connections and the core, and feeds time and polls to the core.

This module has no rules. Everything runs on one event loop, and every event is decided before the next is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Collection

from contracts.desired_state import Pool
from contracts.errors import ConfigError
from contracts.proto import router_pb2 as pb
from contracts.replica_state import ReplicaState
from engines.drivers.base import Driver
from router.config import RouterConfig
from router.control.server import ControlServer
from router.control.servicer import ControlServicer
from router.control.watchers import Watchers
from router.core.decisions import (
    Decision,
    Disconnect,
    Granted,
    PollNow,
    ProbeGeneration,
    Refused,
    ReplayKvEvents,
    Welcomed,
)
from router.core.dispatcher import Dispatcher
from router.core.events import Acquire, Event, ReplicaPolled, StatePublished, Tick
from router.event_log import EventLog
from router.gateway_connection import GatewayConnection
from router.generation_probe import GenerationProber
from router.health import Fetch, HealthPoller, Target
from router.kv_subscriber import KvSubscriptions
from router.lost_reports import LostReports
from router.metrics import RouterMetrics
from router.policies import registry
from router.protocol import codec, messages
from router.spans import PlacementSpans
from router.tokens import Role, RouterTokens

PONG_KEPT_S = 1.0

logger = logging.getLogger(__name__)


class RouterServer:
    """One router. `start` binds its ports, and `stop` drains it; `port` is the bound port."""

    def __init__(
        self,
        config: RouterConfig,
        tokens: RouterTokens,
        connections: Fetch,
        driver_of: Callable[[str], Driver],
        follow_pools: Callable[[tuple[Pool, ...]], None] = lambda pools: None,
        own_engines: Collection[str] = (),
    ) -> None:
        """follow_pools: receives the pools in force before their replicas are polled, so that their keys are known.
        own_engines: see `HealthPoller`."""
        self.config = config
        self.epoch = uuid.uuid4().hex
        self.port = 0
        self.dispatcher = Dispatcher(config, registry.create(config.policy))
        self.metrics = RouterMetrics(self.dispatcher)
        self.spans: PlacementSpans | None = None
        """None if tracing is off."""
        self._watchers = Watchers()
        self.dispatcher.records.on_decision = self._watchers.decided
        servicer = ControlServicer(self.dispatcher, self.epoch, self.handle, self._watchers)
        self._control = ControlServer(servicer, self._allows)
        self.control_port = 0
        """The bound control port."""
        self.connections: dict[int, GatewayConnection] = {}
        self._tokens = tokens
        self._follow_pools = follow_pools
        self._poller = HealthPoller(config, connections, driver_of, self._polled, own_engines)
        self._lost_reports = LostReports()
        self._prober = GenerationProber(connections, driver_of, self.handle)
        self._event_log = EventLog(config.event_log, config.event_log_bytes) if config.event_log else None
        self._kv_events = KvSubscriptions(self.handle)
        self._accepted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at: float | None = None
        self._listeners: list[asyncio.Server] = []
        self._all_gone = asyncio.Event()
        self._pong = pb.RouterMessage(pong=pb.Pong())
        self._pong_until = 0.0

    async def start(self) -> None:
        """Listen. Raises ConfigError if a port is not available."""
        host, port = self.config.host, self.config.port
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(self._accept, host, port)
        except OSError:
            raise ConfigError(
                f"router.port: cannot listen on {host}:{port}; free the port or set another", param="router.port"
            ) from None
        self._listeners.append(listener)
        self.port = listener.sockets[0].getsockname()[1]
        if self.config.socket is not None:
            self._listeners.append(await self._listen_on_socket(self.config.socket))
        self.control_port = await self._control.start(host, self.config.control_port)
        logger.info("router listening on %s:%d", host, self.port)

    async def _listen_on_socket(self, path: str) -> asyncio.Server:
        try:
            return await asyncio.get_running_loop().create_unix_server(self._accept, path)
        except OSError:
            raise ConfigError(
                f"router.socket: cannot listen on {path}; its folder must exist and be writable, and the path "
                "must be shorter than 108 bytes",
                param="router.socket",
            ) from None

    def _accept(self) -> asyncio.Protocol:
        self._accepted += 1
        connection = self.connections[self._accepted] = GatewayConnection(self._accepted, self)
        return connection.stream

    async def stop(self) -> None:
        """Send the decided answers, then close. Gateways send unanswered requests to the next router."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections.values()):
            connection.leave("the router stops")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.drain_timeout_s):
                await self._until_all_gone()
        await self.abort()
        await self._control.stop()
        await self._poller.stop()
        await self._prober.stop()
        self._kv_events.stop()
        if self._event_log is not None:
            self._event_log.close()
        if self._timer is not None:
            self._timer.cancel()

    async def abort(self) -> None:
        """Close all listeners and connections at once, without draining."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections.values()):
            connection.stream.abort("the router stops")
        await self._until_all_gone()

    async def _until_all_gone(self) -> None:
        while self.connections:
            self._all_gone.clear()
            await self._all_gone.wait()

    def handle(self, event: Event) -> None:
        """Pass one event to the core and carry out its decisions."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self.spans is not None:
            self.spans.told(event)
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
            self._control.serving(True)
        self._arm(loop)

    def _polled(self, event: ReplicaPolled) -> None:
        self.handle(event)
        if (replica := self.dispatcher.fleet.replicas.get(event.replica_id)) is not None:
            self._lost_reports.look(replica, failed=event.load_failed or not event.asked)

    def publish(self, event: StatePublished, gateway_id: str) -> None:
        """Pass a desired state to the core, unless its version is implausible.

        The highest version wins, so a far too high one would shut out all real versions until the router restarts.
        """
        held, published = self.dispatcher.fleet.version, event.state.version
        if held and published - held > self.config.max_version_jump:
            logger.error(
                "desired state %d of gateway %s refused: version %d is in force, and router.max_version_jump allows "
                "%d more; if the database is right (after a restore, or after renumbering), restart the "
                "router, which then accepts the first version it receives",
                published,
                gateway_id,
                held,
                self.config.max_version_jump,
            )
            return
        self.handle(event)

    def _allows(self, token: str, changing: bool) -> bool:
        """Whether a token may use the control service: readers may read, and gateways may also change state."""
        role = self.role_of(token)
        return role is Role.GATEWAY or (role is Role.READER and not changing)

    def role_of(self, token: str) -> Role | None:
        """The rights of a token's bearer; None for an unknown token."""
        return self._tokens.role_of(token)

    def pong(self) -> pb.RouterMessage:
        """The answer to a ping, with the state of the replicas. It is cached briefly, because there may be many
        gateways and many replicas."""
        now = asyncio.get_running_loop().time()
        if now >= self._pong_until:
            self._pong = messages.pong(
                ReplicaState(replica.id, replica.pool, replica.in_words, replica.usable)
                for replica in self.dispatcher.fleet.replicas.values()
            )
            self._pong_until = now + PONG_KEPT_S
        return self._pong

    def turned_away(self) -> None:
        """Count a gateway whose stream the router ended."""
        self.metrics.streams_closed.inc()

    def gone(self, number: int) -> None:
        """Remove a connection that has ended."""
        self.connections.pop(number, None)
        if not self.connections:
            self._all_gone.set()

    def _act(self, decision: Decision) -> None:
        self.metrics.decided(decision)
        if isinstance(decision, PollNow):
            self._poller.poll_now(decision.replica_id)
            return
        if isinstance(decision, ProbeGeneration):
            replica = self.dispatcher.fleet.held(decision.replica_id)
            self._prober.probe(decision, Target(replica.url, replica.driver, replica.pool))
            return
        if isinstance(decision, ReplayKvEvents):
            self._kv_events.ask_replay(decision.replica_id, decision.first)
            return
        if self.spans is not None and isinstance(decision, Granted | Refused):
            self.spans.decided(decision)
        connection = self.connections.get(decision.connection)
        if connection is None:
            return
        if isinstance(decision, Granted | Refused):
            connection.send(codec.answer(decision))
        elif isinstance(decision, Welcomed):
            connection.send(messages.welcome(self.epoch, self.config.grace_s, decision.version))
        elif isinstance(decision, Disconnect):
            connection.turn_away(decision.reason)

    def _follow_fleet(self) -> None:
        replicas = self.dispatcher.fleet.replicas.values()
        state = self.dispatcher.fleet.state
        self._follow_pools(() if state is None else state.pools)
        self._poller.follow(
            {replica.id: Target(replica.url, replica.driver, replica.pool) for replica in replicas if replica.wanted}
        )
        wanted = () if state is None else [replica for pool in state.pools for replica in pool.replicas]
        try:
            publishing = [replica for replica in wanted if replica.kv_events]
            self._kv_events.follow({each.id: (each.kv_events, each.kv_events_replay) for each in publishing})
        except ConfigError as error:
            logger.error("KV events not followed: %s", error.message)  # noqa: TRY400  the message is complete

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        wakeup = self.dispatcher.next_wakeup()
        if self._timer is not None:
            if wakeup == self._wakes_at:
                return
            self._timer.cancel()
            self._timer = None
        # kept here, because uvloop's handle has no time once that has passed, such as after a paused process
        self._wakes_at = wakeup
        if wakeup is not None:
            self._timer = loop.call_at(wakeup, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.handle(Tick())
