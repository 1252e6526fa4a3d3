"""The gateway's connection to the router, which requests leases and reports their progress and end.

Messages are read and written in the socket's own callbacks, without a task per request. The client reconnects to a lost
router at once: its hello names the live leases, and then it sends remembered endings and unanswered requests again. A
client belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import deque

from contracts.background_task import BackgroundTask
from contracts.backoff import Backoff
from contracts.desired_state import DesiredState
from contracts.errors import ModelNotFound, NoEngine, Overloaded, RouterUnavailable, SlipstreamError, in_words
from contracts.lease import Lease, LeaseEnd, LeaseRequest
from contracts.proto import router_pb2 as pb
from contracts.replica_state import ReplicaState
from router.book import Crossing, Ending, LeaseBook
from router.client_config import RouterClientConfig
from router.protocol import messages
from router.protocol.address import Address
from router.protocol.stream import MessageStream

logger = logging.getLogger(__name__)

Outgoing = pb.GatewayMessage | Ending


class RouterClient:
    """Leases from the router, for one gateway instance."""

    def __init__(self, config: RouterClientConfig, token: str, gateway_id: str) -> None:
        self.config = config
        self.gateway_id = gateway_id
        self.epoch = uuid.uuid4().hex
        self.connected = False
        self.connections = 0
        """Number of times that the router has welcomed this client."""
        self.replicas: tuple[ReplicaState, ...] = ()
        """The replicas that the router last reported; empty while it is unreachable."""
        self.book = LeaseBook(config.endings_limit)
        self._address = Address.parse(config.address, "gateway.router.address")
        self._loop: asyncio.AbstractEventLoop
        self._token = token
        self._answers: dict[str, asyncio.Future[Lease]] = {}
        self._outbox: deque[Outgoing] = deque()
        self._outbox_limit = config.outbox_messages
        self._welcomed = asyncio.Event()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._patience_timer: asyncio.TimerHandle | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._unheard_pings = 0
        self._state: DesiredState | None = None
        self._router_version = 0
        self._stream: MessageStream | None = None
        self._task = BackgroundTask("router-client", self._keep_connected)

    async def start(self) -> None:
        """Start connecting, and keep trying until `stop`. Does not wait for the router."""
        self._loop = asyncio.get_running_loop()
        self._task.start()

    async def stop(self) -> None:
        """Disconnect. Waiting requests fail with RouterUnavailable; the router ends live leases after its grace
        period."""
        await self._task.stop()
        for timer in (self._flush_timer, self._patience_timer, self._ping_timer):
            if timer is not None:
                timer.cancel()
        self._give_up_waiting(tuple(self.book.pending))

    async def wait_connected(self, timeout_s: float) -> bool:
        """Wait for the router's welcome; False if none arrives within `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._welcomed.wait()
        return self.connected

    async def acquire(self, ask: LeaseRequest) -> Lease:
        """Wait for a slot, at most until the request's deadline plus a margin.

        The caller must pass every returned lease to `release`. Cancelling the wait withdraws the request, and releases
        the slot if its grant was already on the way. Raises RouterUnavailable, Overloaded, NoEngine, ModelNotFound.
        """
        loop = self._loop
        self.book.asked(ask, loop.time())
        answer: asyncio.Future[Lease] = loop.create_future()
        self._answers[ask.lease_id] = answer
        if self.connected:
            patience_s = ask.deadline_s + self.config.answer_margin_s
            self._send(messages.acquire(ask, ask.deadline_s))
        else:
            patience_s = min(ask.deadline_s, self.config.patience_s)
        timer = loop.call_later(patience_s, self._answer_late, ask.lease_id)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                answer.exception()  # retrieved, so that asyncio does not log it as lost
            self._withdraw(ask.lease_id)
            raise
        finally:
            timer.cancel()
            self._answers.pop(ask.lease_id, None)

    def first_token(self, lease_id: str, ttft_s: float, cached_tokens: int) -> None:
        """Report the engine's first text; see `router.core.events.FirstToken`. Never raises; without a router, the
        report is sent later."""
        if self.book.began(lease_id, ttft_s, cached_tokens) and self.connected:
            self._report(messages.first_token(lease_id, ttft_s, cached_tokens))

    def release(self, end: LeaseEnd) -> None:
        """End a lease. Idempotent, and never raises; without a router, the release is remembered and sent later."""
        ending = self.book.released(end)
        if ending is not None:
            self._tell(ending)

    def publish(self, state: DesiredState) -> None:
        """Send this desired state to the router, now and after every reconnect, while the router holds an older
        version."""
        if self._state is None or state.version > self._state.version:
            self._state = state
        self._send_state()

    def _send_state(self) -> None:
        if self.connected and self._state is not None and self._state.version > self._router_version:
            self._router_version = self._state.version
            self._send(messages.desired_state(self._state))

    def _withdraw(self, lease_id: str) -> None:
        ending = self.book.withdrawn(lease_id)
        if ending is not None:
            self._tell(ending)
        elif self.connected:
            self._send(messages.cancel(lease_id))

    def _tell(self, ending: Ending) -> None:
        if not self.connected:
            self.book.remember((ending,))
        elif self.book.pending:
            self._send(ending)
        else:
            self._report(ending)

    def _answer_late(self, lease_id: str) -> None:
        answer = self._answers.get(lease_id)
        if answer is None or answer.done():
            return
        loop = self._loop
        answer_by = self.book.pending[lease_id].deadline_at + self.config.answer_margin_s
        if self.connected and answer_by > loop.time():
            # the request began while the router was away and has been sent since, so its own deadline applies
            loop.call_at(answer_by, self._answer_late, lease_id)
            return
        why = "did not answer" if self.connected else "is not reachable"
        answer.set_exception(RouterUnavailable(f"The router {why}; try again shortly.", retry_after_s=1.0))
        self._withdraw(lease_id)

    def _give_up_waiting(self, lease_ids: tuple[str, ...]) -> None:
        for lease_id in lease_ids:
            if self.book.refused(lease_id):
                error = RouterUnavailable("The router is not reachable; try again shortly.", retry_after_s=1.0)
                self._fail(lease_id, error)

    def _fail(self, lease_id: str, error: SlipstreamError) -> None:
        answer = self._answers.get(lease_id)
        if answer is not None and not answer.done():
            answer.set_exception(error)

    # sending

    def _send(self, item: Outgoing) -> None:
        if len(self._outbox) >= self._outbox_limit:
            logger.warning("router does not read: %d messages wait, reconnecting", len(self._outbox))
            self._drop_connection()
            if isinstance(item, Ending):
                self.book.remember((item,))
            return
        self._outbox.append(item)
        self._flush()

    def _report(self, item: Outgoing) -> None:
        """Queue a report to leave with the next message: an acquire sends it at once, otherwise a timer does."""
        if self.config.report_delay_s == 0 or len(self._outbox) >= self._outbox_limit:
            self._send(item)
            return
        self._outbox.append(item)
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(self.config.report_delay_s, self._flush)

    def _ping(self) -> None:
        if not self.connected:
            return
        if self._unheard_pings == _UNHEARD_PINGS_LIMIT:
            logger.warning("router silent for %d pings, reconnecting", self._unheard_pings)
            self._drop_connection()
            return
        self._unheard_pings += 1
        self._outbox.append(pb.GatewayMessage(ping=pb.Ping()))
        self._flush()
        self._ping_timer = self._loop.call_later(self.config.ping_interval_s, self._ping)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        outbox, stream = self._outbox, self._stream
        while outbox and stream is not None and stream.writable:
            batch = [outbox.popleft() for _ in range(min(len(outbox), _TOGETHER))]
            stream.write([messages.release(item.end) if isinstance(item, Ending) else item for item in batch])

    # receiving

    def _receive(self, payload: bytes) -> None:
        self._unheard_pings = 0
        message = pb.RouterMessage.FromString(payload)
        body = message.WhichOneof("body")
        if body == "grant":
            self._receive_grant(messages.lease_of(message.grant))
        elif body == "shed":
            if self.book.refused(message.shed.lease_id):
                self._fail(message.shed.lease_id, _error_of(message.shed))
        elif body == "welcome":
            self._connected(message.welcome)
        elif body == "pong":
            self.replicas = messages.replicas_of(message.pong)
        elif body == "closing":
            self._drop_connection(message.closing.reason)

    def _receive_grant(self, lease: Lease) -> None:
        crossing = self.book.granted(lease)
        if crossing is Crossing.UNWANTED:
            self._send(messages.cancel(lease.lease_id))
        elif crossing is Crossing.AWAITED:
            answer = self._answers.get(lease.lease_id)
            if answer is None or answer.done():
                self._withdraw(lease.lease_id)
            else:
                answer.set_result(lease)

    # connecting

    async def _keep_connected(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, self.config.reconnect_max_s)
        logged_reason = ""
        while True:
            welcomes = self.connections
            reason = await self._connect_until_lost()
            if self.connections > welcomes:
                backoff.reset()
                logged_reason = ""
                logger.warning("router connection lost (%s), reconnecting", reason)
            elif reason != logged_reason:
                logged_reason = reason
                logger.warning("no connection to the router at %s (%s), retrying", self.config.address, reason)
            await asyncio.sleep(backoff.next_s())

    async def _connect_until_lost(self) -> str:
        """Make one connection attempt; returns the reason for its end."""
        loop = self._loop
        over: asyncio.Future[str] = loop.create_future()

        def lost(reason: str) -> None:
            if self._stream is stream:
                self._disconnected()
            if not over.done():
                over.set_result(reason)

        stream = MessageStream(messages.MAX_MESSAGE_BYTES, self._receive, self._flush, lost)
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                await self._address.connect(stream)
        except (OSError, TimeoutError) as error:
            return str(error) or in_words(error, self.config.connect_timeout_s)
        self._stream = stream
        stream.write((messages.opening(self._token), self.book.hello(self.gateway_id, self.epoch)))
        patience = loop.call_later(self.config.connect_timeout_s, self._unwelcome)
        try:
            return await over
        finally:
            patience.cancel()
            self._disconnected()
            stream.abort("left")

    def _unwelcome(self) -> None:
        if not self.connected:
            self._drop_connection("no welcome received")

    def _connected(self, welcome: pb.Welcome) -> None:
        if self._patience_timer is not None:
            self._patience_timer.cancel()
            self._patience_timer = None
        self.connected = True
        self.connections += 1
        self._router_version = welcome.desired_state_version
        self._welcomed.set()
        self._outbox.clear()
        # the state first, because a router that has just started cannot place requests without it
        self._send_state()
        self._outbox.extend(self.book.reports())
        self._outbox.extend(self.book.take_endings())
        self._outbox.extend(self.book.asks(self._loop.time()))
        # resent messages do not show that the router does not read
        self._outbox_limit = self.config.outbox_messages + len(self._outbox)
        self._unheard_pings = 0
        self._ping()

    def _disconnected(self) -> None:
        self._stream = None
        if not self.connected:
            return
        self.connected = False
        self.replicas = ()
        self._welcomed.clear()
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        # later requests start their own timers
        waiting = tuple(self.book.pending)
        self._patience_timer = self._loop.call_later(self.config.patience_s, self._give_up_waiting, waiting)
        self.book.remember(item for item in self._outbox if isinstance(item, Ending))
        self._outbox.clear()

    def _drop_connection(self, reason: str = "dropped") -> None:
        if self._stream is not None:
            self._stream.abort(reason)


_FIRST_PAUSE_S = 0.02
_UNHEARD_PINGS_LIMIT = 3
_TOGETHER = 256
"""Most messages in one write, after which the client checks that the router still keeps up."""

_ERRORS: dict[str, type[SlipstreamError]] = {
    kind.code: kind for kind in (ModelNotFound, NoEngine, Overloaded, RouterUnavailable)
}


def _error_of(shed: pb.Shed) -> SlipstreamError:
    kind = _ERRORS.get(shed.code, RouterUnavailable)
    retry_after_s = shed.retry_after_ms / 1000 or None
    error = kind(shed.reason, retry_after_s=retry_after_s)
    if isinstance(error, Overloaded):
        error.over_share = shed.over_share
    return error
