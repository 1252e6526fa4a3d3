"""Translates between the contracts and the router's proto, for both ends of the connection.

Durations are sent as whole milliseconds, rounded up if rounding down would turn "soon" into "never". Messages that
every request sends are filled in place: a constructor with arguments costs four times as much, and copies nested
messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from contracts.desired_state import DesiredState
from contracts.errors import ConfigError
from contracts.generation import Tier
from contracts.lease import Engine, Lease, LeaseEnd, LeaseRequest
from contracts.prefix import HASH_BYTES
from contracts.proto import router_pb2 as pb
from contracts.replica_state import ReplicaState
from contracts.usage import Finish, Usage

VERSION = 1
"""Version of the protocol. Any other is refused, so that a half-upgraded deployment reports its fault."""
MAX_OPENING_BYTES = 4 * 1024
MAX_UINT32 = 2**32 - 1
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A large limit, because a hello names every live lease of a gateway, and a desired state every replica."""


def opening(token: str) -> pb.Opening:
    """The first frame of a connection."""
    return pb.Opening(token=token, version=VERSION)


def acquire(ask: LeaseRequest, remaining_s: float) -> pb.GatewayMessage:
    """The message that requests a slot. remaining_s: time left until the request's deadline."""
    message = pb.GatewayMessage()
    body = message.acquire
    body.lease_id, body.request_id, body.attempt = ask.lease_id, ask.request_id, ask.attempt
    body.tier, body.model = str(ask.tier), ask.model
    body.prompt_tokens, body.max_output_tokens = ask.prompt_tokens, ask.max_output_tokens
    body.deadline_ms = milliseconds(remaining_s)
    body.organization_id, body.project_id = ask.organization_id, ask.project_id
    body.prefix_kind, body.prefix_hashes = ask.prefix_kind, ask.prefix_hashes
    body.priority, body.share, body.project_share = ask.priority, ask.share, ask.project_share
    for name in _SELDOM:
        if value := getattr(ask, name):
            setattr(body, name, value)
    if ask.excluded_replicas:
        body.excluded_replicas.extend(ask.excluded_replicas)
    return message


_SELDOM = ("session_id", "unit", "affinity", "idle_replica", "traceparent", "pool", "adapter")
"""Fields that most lease requests leave empty."""


def ask_of(message: pb.Acquire) -> LeaseRequest:
    """The lease request in an Acquire. Raises ValueError on an unknown tier or a truncated hash list."""
    hashes = message.prefix_hashes
    if len(hashes) % HASH_BYTES:
        raise ValueError(f"prefix_hashes: {len(hashes)} bytes, not a multiple of {HASH_BYTES}")
    return LeaseRequest(
        lease_id=message.lease_id,
        request_id=message.request_id,
        attempt=message.attempt,
        tier=Tier(message.tier),
        model=message.model,
        prompt_tokens=message.prompt_tokens,
        max_output_tokens=message.max_output_tokens,
        deadline_s=message.deadline_ms / 1000,
        organization_id=message.organization_id,
        prefix_kind=message.prefix_kind,
        prefix_hashes=hashes,
        excluded_replicas=tuple(message.excluded_replicas),
        session_id=message.session_id,
        unit=message.unit,
        priority=message.priority,
        share=message.share or 1.0,
        project_id=message.project_id,
        project_share=message.project_share or 1.0,
        affinity=message.affinity,
        idle_replica=message.idle_replica,
        traceparent=message.traceparent,
        pool=message.pool,
        adapter=message.adapter,
    )


def pong(replicas: Iterable[ReplicaState]) -> pb.RouterMessage:
    """The router's answer to a ping."""
    states = [pb.ReplicaState(id=each.id, pool=each.pool, state=each.state, usable=each.usable) for each in replicas]
    return pb.RouterMessage(pong=pb.Pong(replicas=states))


def replicas_of(message: pb.Pong) -> tuple[ReplicaState, ...]:
    """The replicas that the router reported."""
    return tuple(ReplicaState(each.id, each.pool, each.state, each.usable) for each in message.replicas)


def cancel(lease_id: str) -> pb.GatewayMessage:
    """The message that withdraws an acquire, or returns a grant for which no request waits."""
    return pb.GatewayMessage(cancel=pb.Cancel(lease_id=lease_id))


def first_token(lease_id: str, ttft_s: float, cached_tokens: int) -> pb.GatewayMessage:
    """The message that reports an engine's first token."""
    message = pb.GatewayMessage()
    body = message.first_token
    body.lease_id, body.ttft_ms, body.cached_tokens = lease_id, milliseconds(ttft_s), min(cached_tokens, MAX_UINT32)
    return message


def release(end: LeaseEnd) -> pb.GatewayMessage:
    """The message that ends a lease, with its usage."""
    message, usage = pb.GatewayMessage(), end.usage
    body = message.release
    body.lease_id, body.finish = end.lease_id, str(end.finish)
    # a count that the message cannot hold would fail all messages of a write
    body.prompt_tokens = min(usage.prompt_tokens, MAX_UINT32)
    body.cached_tokens = min(usage.cached_tokens, MAX_UINT32)
    body.completion_tokens = min(usage.completion_tokens, MAX_UINT32)
    body.engine_fault, body.engine_full = end.engine_fault, end.engine_full
    body.adapter_missing, body.prefill_fault = end.adapter_missing, end.prefill_fault
    return message


def end_of(message: pb.Release) -> LeaseEnd:
    """The end in a Release. Raises ValueError on an unknown finish."""
    usage = Usage(
        prompt_tokens=message.prompt_tokens,
        completion_tokens=message.completion_tokens,
        cached_tokens=message.cached_tokens,
    )
    return LeaseEnd(
        message.lease_id,
        Finish(message.finish),
        usage,
        message.engine_fault,
        message.engine_full,
        message.adapter_missing,
        message.prefill_fault,
    )


def desired_state(state: DesiredState) -> pb.GatewayMessage:
    """The message with one version of the fleet's desired state."""
    document = msgspec.json.encode(state)
    return pb.GatewayMessage(desired_state=pb.DesiredStateVersion(version=state.version, document=document))


def desired_state_of(message: pb.DesiredStateVersion) -> DesiredState:
    """The validated state in a message. Raises ValueError if it cannot be read or is inconsistent."""
    try:
        state = msgspec.json.decode(message.document, type=DesiredState)
        state.check()
    except (msgspec.MsgspecError, ConfigError) as error:
        raise ValueError(f"desired state version {message.version}: {error}") from error
    return state


def grant(lease: Lease) -> pb.RouterMessage:
    """The answer that grants a lease."""
    message, engine = pb.RouterMessage(), lease.engine
    body = message.grant
    body.lease_id, body.replica_id, body.url = lease.lease_id, engine.replica_id, engine.url
    body.driver, body.engine_model, body.pool = engine.driver, engine.model, engine.pool
    body.queued_us = min(round(lease.queued_s * 1e6), MAX_UINT32)
    body.load_adapter, body.evict_adapter, body.no_drafts = lease.load_adapter, lease.evict_adapter, lease.no_drafts
    if lease.prefill is not None:
        body.prefill.CopyFrom(_prefill_engine(lease.prefill))
    return message


def lease_of(message: pb.Grant) -> Lease:
    """The lease in a Grant."""
    engine = Engine(message.replica_id, message.url, message.driver, message.engine_model, message.pool)
    prefill: Engine | None = None
    if message.HasField("prefill"):
        half = message.prefill
        prefill = Engine(
            half.replica_id, half.url, half.driver, half.engine_model, half.pool, bootstrap_port=half.bootstrap_port
        )
    queued_s = message.queued_us / 1e6
    return Lease(
        message.lease_id,
        engine,
        queued_s,
        message.load_adapter,
        message.evict_adapter,
        prefill,
        no_drafts=message.no_drafts,
    )


def _prefill_engine(engine: Engine) -> pb.PrefillEngine:
    return pb.PrefillEngine(
        replica_id=engine.replica_id,
        url=engine.url,
        driver=engine.driver,
        engine_model=engine.model,
        pool=engine.pool,
        bootstrap_port=engine.bootstrap_port,
    )


def shed(
    lease_id: str, code: str, reason: str, retry_after_s: float | None, over_share: bool = False
) -> pb.RouterMessage:
    """The answer that refuses a lease request. retry_after_s: None if a retry will not help."""
    wait = 0 if retry_after_s is None else max(1, milliseconds(retry_after_s))
    return pb.RouterMessage(
        shed=pb.Shed(lease_id=lease_id, code=code, reason=reason, retry_after_ms=wait, over_share=over_share)
    )


def welcome(router_epoch: str, grace_s: float, version: int) -> pb.RouterMessage:
    """The answer to a gateway's hello."""
    return pb.RouterMessage(
        welcome=pb.Welcome(router_epoch=router_epoch, grace_ms=milliseconds(grace_s), desired_state_version=version)
    )


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, rounded up, within the proto's range."""
    return max(0, min(math.ceil(seconds * 1000), MAX_UINT32))
