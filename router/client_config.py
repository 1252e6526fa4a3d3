"""Settings of the gateway's way to the router. A file of its own: reading settings must not load the connection."""

from __future__ import annotations

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0.001, le=3600)]


class RouterClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a gateway reaches the router."""

    address: str = "127.0.0.1:8100"
    """Host and port of the router, or `unix:` and the path of its socket."""
    control_address: str = ""
    """Host and port of the router's control service, which operators are told the fleet's state by. Empty: that of this
    machine (`router.control_port`)."""
    patience_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 1.0
    """How long an ask waits for the router to come back before it fails; never longer than its own deadline."""
    answer_margin_s: Seconds = 1.0
    """Beyond an ask's deadline the router's silence is taken for its absence after this long."""
    connect_timeout_s: Seconds = 2.0
    """A connection that is not welcomed within this time is given up and tried again."""
    ping_interval_s: Seconds = 1.0
    """Time between two pings. A router that has said nothing for three of them hangs, and is connected to anew."""
    reconnect_max_s: Seconds = 0.5
    """Longest pause between two attempts to connect; the first ones are shorter, all of them jittered."""
    report_delay_s: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02
    """First tokens and releases wait this long for company, so that several travel as one message. A release does not
    wait while an ask does: the place it frees may be the one."""
    outbox_messages: Annotated[int, msgspec.Meta(ge=16)] = 20_000
    """Messages waiting for a router that does not read; beyond it the connection is dropped and made anew."""
    endings_limit: Annotated[int, msgspec.Meta(ge=1)] = 50_000
    """Releases remembered while the router is away."""
