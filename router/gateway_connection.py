"""One gateway's connection to the router, which the gateways' token opens and which then carries leases."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from google.protobuf.message import DecodeError

from contracts.errors import RouterUnavailable
from contracts.proto import router_pb2 as pb
from router.config import RouterConfig
from router.core.events import Event, GatewayDisconnected, StatePublished
from router.protocol import codec, messages
from router.protocol.stream import MessageStream
from router.tokens import Role

logger = logging.getLogger(__name__)

_FAREWELL_S = 1.0


class LeaseService(Protocol):
    """The parts of the router that a connection needs."""

    config: RouterConfig

    def role_of(self, token: str) -> Role | None:
        """The rights of a token's bearer; None for an unknown token."""

    def handle(self, event: Event) -> None:
        """Pass an event to the core."""

    def publish(self, event: StatePublished, gateway_id: str) -> None:
        """Pass a desired state to the core, unless its version is implausible."""

    def pong(self) -> pb.RouterMessage:
        """The answer to a ping, with the state of the replicas."""

    def turned_away(self) -> None:
        """Count a gateway whose stream the router ended."""

    def gone(self, number: int) -> None:
        """Remove the connection."""


class GatewayConnection:
    """The router's end of a connection. number: identifies the connection in the core. Answers that the gateway does
    not read wait here, up to a limit."""

    def __init__(self, number: int, service: LeaseService) -> None:
        self.number = number
        self.gateway_id = ""
        """Empty until a hello has arrived."""
        self.stream = MessageStream(messages.MAX_OPENING_BYTES, self._receive, self._flush, self._lost)
        self._service = service
        self._take: Callable[[bytes], None] = self._opening
        self._heard = False
        self._outbox: deque[pb.RouterMessage] = deque()
        self._leaving = ""
        """The reason to end the connection once everything has been sent; empty if it stays open."""
        self._silence_s = service.config.silence_s
        self._timer = asyncio.get_running_loop().call_later(self._silence_s, self._check_silence)

    def send(self, message: pb.RouterMessage) -> None:
        """Queue an answer. Ends the connection if the gateway has stopped reading."""
        if self.stream.writable and not self._outbox:
            self.stream.write((message,))
        elif len(self._outbox) < self._service.config.stream_messages:
            self._outbox.append(message)
        else:
            self.turn_away(f"{len(self._outbox)} answers wait and the gateway does not read them")

    def turn_away(self, reason: str) -> None:
        """End the connection by the router's decision. The gateway receives the reason, if it reads."""
        if self._take is not _ignore:
            if self.gateway_id:
                logger.warning("stream of gateway %s closed: %s", self.gateway_id, reason)
                self._service.turned_away()
            self._send_last(pb.RouterMessage(closing=pb.Closing(reason=reason)), reason)

    def _send_last(self, message: pb.RouterMessage, reason: str) -> None:
        """Send a message, then close; a gateway that does not read soon misses it."""
        self._take = _ignore
        self._timer.cancel()
        if self.stream.writable:
            self.stream.write((message,))
            self.stream.close(reason)
            self._timer = asyncio.get_running_loop().call_later(_FAREWELL_S, self.stream.abort, reason)
        else:
            self.stream.abort(reason)

    def leave(self, reason: str) -> None:
        """End the connection once all decided answers have been sent."""
        self._take = _ignore
        self._leaving = reason
        self._flush()

    # called by the stream

    def _receive(self, payload: bytes) -> None:
        self._heard = True
        try:
            self._take(payload)
        except DecodeError as error:
            self.turn_away(f"a message that cannot be read: {error}")

    def _opening(self, payload: bytes) -> None:
        opening = pb.Opening.FromString(payload)
        role = self._service.role_of(opening.token)
        if role is None:
            self.turn_away("a router token is required: the gateways' token (router.token)")
        elif role is not Role.GATEWAY:
            logger.warning("lease stream refused: opened with a reader's token")
            self.turn_away(
                "a reader's token is valid for the control service (router.control_port); leases require the gateways' "
                "token (router.token)"
            )
        elif opening.version != messages.VERSION:
            self.turn_away(f"version {opening.version} of the lease protocol; this router speaks {messages.VERSION}")
        else:
            self.stream.frames.limit_bytes = messages.MAX_MESSAGE_BYTES
            self._take = self._hello

    def _hello(self, payload: bytes) -> None:
        message = pb.GatewayMessage.FromString(payload)
        if message.hello.gateway_id and message.hello.epoch:
            self.gateway_id = message.hello.gateway_id
            self._take = self._lease_message
            self._service.handle(codec.hello_event(self.number, message.hello))
        else:
            self.turn_away("the first message must be a hello")

    def _lease_message(self, payload: bytes) -> None:
        message = pb.GatewayMessage.FromString(payload)
        if message.HasField("ping"):
            self.send(self._service.pong())
            return
        try:
            event = codec.event(self.number, message)
        except ValueError as error:
            self._reject(message, error)
        else:
            if isinstance(event, StatePublished):
                self._service.publish(event, self.gateway_id)
            else:
                self._service.handle(event)

    def _reject(self, message: pb.GatewayMessage, error: ValueError) -> None:
        """Refuse a message that a gateway of another version sent, so that no lease request is left waiting."""
        logger.error("message from gateway %s refused: %s", self.gateway_id, error)
        if message.WhichOneof("body") == "acquire":
            self.send(messages.shed(message.acquire.lease_id, RouterUnavailable.code, str(error), None))

    def _flush(self) -> None:
        while self._outbox and self.stream.writable:
            self.stream.write((self._outbox.popleft(),))
        if self._leaving and not self._outbox:
            self.stream.close(self._leaving)

    def _lost(self, reason: str) -> None:
        self._take = _ignore
        self._timer.cancel()
        self._outbox.clear()
        self._service.gone(self.number)
        if self.gateway_id:
            logger.info("gateway %s: %s", self.gateway_id, reason)
            self._service.handle(GatewayDisconnected(self.number))

    def _check_silence(self) -> None:
        if not self._heard or not self.gateway_id:
            self.turn_away(f"nothing heard for {self._silence_s:g} s")
            return
        self._heard = False
        self._timer = asyncio.get_running_loop().call_later(self._silence_s, self._check_silence)


def _ignore(payload: bytes) -> None:
    """Ignore messages after the router has ended the connection."""
