"""Converts the core's state to messages of the control service, and records back."""

from __future__ import annotations

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict

from contracts.proto import control_pb2 as pb
from router.core.dispatcher import Dispatcher
from router.core.record import Record
from router.core.replica import Replica


def fleet(dispatcher: Dispatcher, epoch: str) -> pb.Fleet:
    """The fleet as the core sees it now."""
    pools = [
        pb.Pool(
            name=pool.name,
            queued=len(pool.queue),
            speculation=pool.speculation,
            replicas=[replica(dispatcher, one) for one in dispatcher.fleet.replicas.values() if one.pool == pool.name],
        )
        for pool in dispatcher.fleet.pools.values()
    ]
    return pb.Fleet(
        router_epoch=epoch,
        desired_state_version=dispatcher.fleet.version,
        gateways=len(dispatcher.connections),
        pools=pools,
    )


def replica(dispatcher: Dispatcher, one: Replica) -> pb.Replica:
    """One replica as the core sees it now."""
    return pb.Replica(
        id=one.id,
        url=one.url,
        driver=one.driver,
        health=one.health.value,
        detail=one.detail or "; ".join(one.lost),
        breaker=one.breaker.state.value,
        breaker_reason=one.breaker.reason,
        draining=one.draining,
        usable=one.usable,
        leases=one.leases,
        max_concurrency=one.max_concurrency,
        running=one.load.running,
        waiting=one.load.waiting,
        prefill_tokens=max(one.prefill_tokens, 0),
        prefix_blocks=dispatcher.fleet.blocks_of(one),
        headroom_tokens=one.headroom_tokens,
        prefill_tokens_per_s=dispatcher.fleet.prefill_tokens_per_s(one),
        weight=one.weight,
        limited_by=one.limited_by,
        hardware=one.hardware,
    )


def decision(record: Record, missed: int = 0) -> pb.Decision:
    """The message for a record. missed: number of decisions that the watcher did not receive before this one."""
    # protobuf represents an unknown value by absence, not by null
    known = {name: value for name, value in msgspec.to_builtins(record).items() if value is not None}
    message: pb.Decision = ParseDict(known, pb.Decision())
    message.missed = missed
    return message


def record(message: pb.Decision) -> Record:
    """The record in a message."""
    values = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return msgspec.convert(values, Record)
