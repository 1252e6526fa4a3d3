"""The gateway's connection to the router: asks for leases and reports how they went, over one gRPC stream.

One reader, one writer, no task per request. A lost router is reconnected to at once: live leases are named in the
hello, asks without an answer are sent again, endings that happened meanwhile follow. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import uuid
from collections import deque
from typing import Any

import grpc

from contracts.desired_state import DesiredState
from contracts.errors import (
    ModelNotFound,
    NoEngine,
    Overloaded,
    RouterUnavailable,
    SlipstreamError,
)
from contracts.lease import Ask, Lease, LeaseEnd
from contracts.proto import router_pb2 as pb
from contracts.proto import router_pb2_grpc as rpc
from router import wire
from router.book import Crossing, Ending, LeaseBook
from router.client_config import RouterClientConfig

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
        """How often the router has welcomed this client."""
        self.book = LeaseBook(config.endings_limit)
        self._metadata = ((wire.AUTHORIZATION, wire.bearer(token)),)
        self._answers: dict[str, asyncio.Future[Lease]] = {}
        self._outbox: deque[Outgoing] = deque()
        self._outbox_filled = asyncio.Event()
        self._outbox_limit = config.outbox_messages
        self._welcomed = asyncio.Event()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._patience_timer: asyncio.TimerHandle | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._unheard_pings = 0
        self._state: DesiredState | None = None
        self._router_version = 0
        self._call: Any = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin connecting, and keep at it until `stop`. Does not wait for the router."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name="router-client")

    async def stop(self) -> None:
        """Disconnect; asks still waiting fail with RouterUnavailable. Live leases end at the router after its grace."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for timer in (self._flush_timer, self._patience_timer, self._ping_timer):
            if timer is not None:
                timer.cancel()
        self._give_up_waiting(tuple(self.book.pending))

    async def wait_connected(self, timeout_s: float) -> bool:
        """Whether the router has welcomed us within `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._welcomed.wait(), timeout_s)
        return self.connected

    async def acquire(self, ask: Ask) -> Lease:
        """Wait for a place, at most the ask's deadline and a margin.

        Every lease returned must be given to `release`. Cancelling the wait withdraws the ask, and gives the place back
        when its grant was already on the way. Raises RouterUnavailable, Overloaded, NoEngine, ModelNotFound.
        """
        loop = asyncio.get_running_loop()
        self.book.asked(ask, loop.time())
        answer: asyncio.Future[Lease] = loop.create_future()
        self._answers[ask.lease_id] = answer
        if self.connected:
            patience_s = ask.deadline_s + self.config.answer_margin_s
            self._send(wire.acquire(ask, ask.deadline_s))
        else:
            patience_s = min(ask.deadline_s, self.config.patience_s)
        timer = loop.call_later(patience_s, self._answer_late, ask.lease_id)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                answer.exception()  # looked at, so that asyncio does not report it as lost
            self._withdraw(ask.lease_id)
            raise
        finally:
            timer.cancel()
            self._answers.pop(ask.lease_id, None)

    def first_token(self, lease_id: str, ttft_s: float, cached_tokens: int) -> None:
        """Report that the engine began to answer. Never raises; without a router the report is dropped."""
        if self.connected and lease_id in self.book.live:
            self._report(wire.first_token(lease_id, ttft_s, cached_tokens))

    def release(self, end: LeaseEnd) -> None:
        """End a lease. Idempotent, never raises; without a router it is remembered and told later."""
        ending = self.book.released(end)
        if ending is not None:
            self._tell(ending)

    def publish(self, state: DesiredState) -> None:
        """Hand the router this desired state, now and after every reconnect, while it holds an older version."""
        if self._state is None or state.version > self._state.version:
            self._state = state
        self._send_state()

    def _send_state(self) -> None:
        if self.connected and self._state is not None and self._state.version > self._router_version:
            self._router_version = self._state.version
            self._send(wire.desired_state(self._state))

    def _withdraw(self, lease_id: str) -> None:
        ending = self.book.withdrawn(lease_id)
        if ending is not None:
            self._tell(ending)
        elif self.connected:
            self._send(wire.cancel(lease_id))

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
        loop = asyncio.get_running_loop()
        answer_by = self.book.pending[lease_id].deadline_at + self.config.answer_margin_s
        if self.connected and answer_by > loop.time():
            # asked while the router was away and sent since: its own deadline counts now
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
            logger.warning("the router does not read: %d messages wait, reconnecting", len(self._outbox))
            self._drop_connection()
            if isinstance(item, Ending):
                self.book.remember((item,))
            return
        self._outbox.append(item)
        self._outbox_filled.set()

    def _report(self, item: Outgoing) -> None:
        """Send, but let it wait for company: an acquire takes it along, else a timer does."""
        if self.config.report_delay_s == 0 or len(self._outbox) >= self._outbox_limit:
            self._send(item)
            return
        self._outbox.append(item)
        if self._flush_timer is None and not self._outbox_filled.is_set():
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self.config.report_delay_s, self._flush)

    def _ping(self) -> None:
        if not self.connected:
            return
        if self._unheard_pings == _UNHEARD_PINGS_LIMIT:
            logger.warning("the router has been silent for %d pings, reconnecting", self._unheard_pings)
            self._drop_connection()
            return
        self._unheard_pings += 1
        self._outbox.append(pb.GatewayMessage(ping=pb.Ping()))
        self._outbox_filled.set()
        self._ping_timer = asyncio.get_running_loop().call_later(self.config.ping_interval_s, self._ping)

    def _flush(self) -> None:
        self._flush_timer = None
        if self._outbox:
            self._outbox_filled.set()

    async def _write(self, call: Any) -> None:
        outbox = self._outbox
        try:
            while True:
                await self._outbox_filled.wait()
                while outbox:
                    taken = [outbox.popleft() for _ in range(min(len(outbox), self.config.batch_messages))]
                    messages = [wire.release(item.end) if isinstance(item, Ending) else item for item in taken]
                    try:
                        await call.write(wire.joined_for_router(messages))
                    except BaseException:
                        # perhaps delivered, perhaps not: told again, a second release of one lease is nothing
                        outbox.extendleft(reversed(taken))
                        raise
                self._outbox_filled.clear()
        finally:
            call.cancel()

    # receiving

    def _receive(self, message: pb.RouterMessage) -> None:
        self._unheard_pings = 0
        for part in wire.parts(message):
            body = part.WhichOneof("body")
            if body == "grant":
                self._receive_grant(wire.lease_of(part.grant))
            elif body == "shed" and self.book.refused(part.shed.lease_id):
                self._fail(part.shed.lease_id, _error_of(part.shed))

    def _receive_grant(self, lease: Lease) -> None:
        crossing = self.book.granted(lease)
        if crossing is Crossing.UNWANTED:
            self._send(wire.cancel(lease.lease_id))
        elif crossing is Crossing.AWAITED:
            answer = self._answers.get(lease.lease_id)
            if answer is None or answer.done():
                self._withdraw(lease.lease_id)
            else:
                answer.set_result(lease)

    # connecting

    async def _keep_connected(self) -> None:
        pause_s = _FIRST_PAUSE_S
        said = ""
        while True:
            welcomes = self.connections
            reason = await self._connect_until_lost()
            if self.connections > welcomes:
                pause_s = _FIRST_PAUSE_S
                said = ""
                logger.warning("router connection lost (%s), reconnecting", reason)
            elif reason != said:
                said = reason
                logger.warning("no connection to the router at %s (%s), trying on", self.config.address, reason)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  jitter, not a secret
            pause_s = min(pause_s * 2, self.config.reconnect_max_s)

    async def _connect_until_lost(self) -> str:
        """One attempt; returns why it is over."""
        try:
            await self._connect_once()
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        except (TimeoutError, asyncio.InvalidStateError) as error:
            return repr(error)
        except asyncio.CancelledError:
            # gRPC reports a call that was cancelled (by our writer) like a task that was cancelled (by stop)
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return "dropped"
        return "the router ended the stream"

    async def _connect_once(self) -> None:
        async with grpc.aio.insecure_channel(self.config.address, options=_CHANNEL_OPTIONS) as channel:
            call: Any = rpc.RouterStub(channel).Connect(metadata=self._metadata)
            writer: asyncio.Task[None] | None = None
            try:
                async with asyncio.timeout(self.config.connect_timeout_s):
                    await call.write(self.book.hello(self.gateway_id, self.epoch))
                    first: Any = await call.read()
                if first is grpc.aio.EOF or first.WhichOneof("body") != "welcome":
                    return
                self._connected(call, first.welcome)
                writer = asyncio.create_task(self._write(call), name="router-client-writer")
                while (message := await call.read()) is not grpc.aio.EOF:
                    self._receive(message)
            finally:
                self._disconnected()
                call.cancel()
                if writer is not None:
                    writer.cancel()
                    await asyncio.gather(writer, return_exceptions=True)
                    self._keep_untold()

    def _connected(self, call: Any, welcome: pb.Welcome) -> None:
        if self._patience_timer is not None:
            self._patience_timer.cancel()
            self._patience_timer = None
        self.connected = True
        self.connections += 1
        self._call = call
        self._router_version = welcome.desired_state_version
        self._welcomed.set()
        self._outbox.clear()
        # the state first: a router that has just started cannot place anything before it
        self._send_state()
        self._outbox.extend(self.book.told())
        self._outbox.extend(self.book.asks(asyncio.get_running_loop().time()))
        # what is sent again is no sign of a router that does not read
        self._outbox_limit = self.config.outbox_messages + len(self._outbox)
        self._unheard_pings = 0
        self._ping()

    def _disconnected(self) -> None:
        self._call = None
        if not self.connected:
            return
        self.connected = False
        self._welcomed.clear()
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        loop = asyncio.get_running_loop()
        # those who ask from now on bring their own timer
        waiting = tuple(self.book.pending)
        self._patience_timer = loop.call_later(self.config.patience_s, self._give_up_waiting, waiting)

    def _keep_untold(self) -> None:
        self.book.remember(item for item in self._outbox if isinstance(item, Ending))
        self._outbox.clear()
        self._outbox_filled.clear()

    def _drop_connection(self) -> None:
        if self._call is not None:
            self._call.cancel()


_FIRST_PAUSE_S = 0.02
_UNHEARD_PINGS_LIMIT = 3
_CHANNEL_OPTIONS = (
    # shared subchannels would remember gRPC's own backoff across our attempts
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", wire.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", wire.MAX_MESSAGE_BYTES),
)

_ERRORS: dict[str, type[SlipstreamError]] = {
    kind.code: kind for kind in (ModelNotFound, NoEngine, Overloaded, RouterUnavailable)
}


def _error_of(shed: pb.Shed) -> SlipstreamError:
    kind = _ERRORS.get(shed.code, RouterUnavailable)
    retry_after_s = shed.retry_after_ms / 1000 or None
    return kind(shed.reason, retry_after_s=retry_after_s)
