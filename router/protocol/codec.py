"""Translates one gateway's messages into events of the core, and the core's decisions into messages."""

from __future__ import annotations

from contracts.lease import HeldLease
from contracts.proto import router_pb2 as pb
from router.core.decisions import Granted, Refused
from router.core.events import Acquire, Cancel, Event, FirstToken, GatewayConnected, Release, StatePublished
from router.protocol import messages


def hello_event(connection: int, message: pb.Hello) -> GatewayConnected:
    """The event of a stream's first message."""
    leases = tuple(
        HeldLease(lease.lease_id, lease.replica_id, lease.prompt_tokens, lease.max_output_tokens)
        for lease in message.leases
    )
    return GatewayConnected(connection, message.gateway_id, message.epoch, leases)


def event(connection: int, message: pb.GatewayMessage) -> Event:
    """The event of any later message. Raises ValueError if the message has none or cannot be read."""
    body = message.WhichOneof("body")
    if body == "acquire":
        return Acquire(connection, messages.ask_of(message.acquire))
    if body == "release":
        return Release(connection, messages.end_of(message.release))
    if body == "first_token":
        first = message.first_token
        return FirstToken(connection, first.lease_id, first.ttft_ms / 1000, first.cached_tokens)
    if body == "cancel":
        return Cancel(connection, message.cancel.lease_id)
    if body == "desired_state":
        return StatePublished(messages.desired_state_of(message.desired_state))
    raise ValueError(f"a {body or 'empty'} message is not allowed after the hello")


def answer(decision: Granted | Refused) -> pb.RouterMessage:
    """The message that carries a decision to a gateway."""
    if isinstance(decision, Granted):
        return messages.grant(decision.lease)
    return messages.shed(decision.lease_id, decision.code, decision.reason, decision.retry_after_s, decision.over_share)
