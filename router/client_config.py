"""Settings of the gateway's connection to the router, in a separate file because reading them must not import the
connection."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed

Seconds = Annotated[float, msgspec.Meta(ge=0.001, le=3600)]


class RouterClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gateway's connection to the router."""

    address: str = "127.0.0.1:8100"
    """Host and port of the router, or `unix:` and the path of its socket."""
    control_address: str = ""
    """Host and port of the router's control service, from which operators read the fleet's state. Empty: this machine
    and `router.control_port`."""
    patience_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 1.0
    """Longest time that a lease request waits for an unreachable router before it fails, within its own deadline."""
    answer_margin_s: Fixed[Seconds] = 1.0
    """Time after a lease request's deadline at which a router that has not responded counts as unreachable."""
    connect_timeout_s: Fixed[Seconds] = 2.0
    """A connection that is not welcomed within this time is closed and retried."""
    ping_interval_s: Fixed[Seconds] = 1.0
    """Time between two pings. After three unanswered pings the gateway reconnects to the router."""
    reconnect_max_s: Fixed[Seconds] = 0.5
    """Longest pause between two attempts to connect; the first pauses are shorter, and all are jittered."""
    report_delay_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=1)]] = 0.02
    """How long reports of first tokens and releases wait for other messages to travel with. A release is sent at once
    while a lease request waits, because that request may need the slot."""
    outbox_messages: Fixed[Annotated[int, msgspec.Meta(ge=16)]] = 20_000
    """Maximum number of messages for a router that does not read. Beyond it, the gateway reconnects."""
    endings_limit: Fixed[Annotated[int, msgspec.Meta(ge=1)]] = 50_000
    """Maximum number of releases remembered while the router is unreachable."""
