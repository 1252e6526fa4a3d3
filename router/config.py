"""Settings of the router process."""

from __future__ import annotations

from typing import Annotated

import msgspec

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class RouterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the router listens, polls engines, queues and places."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8100
    """TCP port of the lease protocol; 0 takes any free one."""
    metrics_port: Port = 0
    """HTTP port on `host` for /metrics and /healthz; 0 switches them off."""
    policy: str = "least_load"
    """How a replica is chosen among those that could take the request: a file of router/policies/."""
    queue_length: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1_000
    """Requests that may wait per pool; beyond it they are shed at once."""
    silence_s: Annotated[float, msgspec.Meta(ge=0.01, le=3_600)] = 10.0
    """A gateway that has sent nothing for this long, not even its pings, is taken for disconnected."""
    grace_s: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 10.0
    """How long the leases of a gateway outlive its connection."""
    poll_interval_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 1.0
    """Time between two polls of a healthy replica."""
    recovery_interval_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.25
    """Time between two polls of a replica that is not healthy; one success brings it back."""
    probe_timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 2.0
    """A replica that does not answer a poll within this time has failed it."""
    failure_threshold: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    """Polls that must fail in a row before a healthy replica is given no more requests. A fault met by a gateway
    counts for all of them but one."""
    retry_after_s: Annotated[float, msgspec.Meta(ge=0.1, le=600)] = 2.0
    """What clients are told to wait when no engine is healthy, which nobody can predict."""
    stream_messages: Annotated[int, msgspec.Meta(ge=1)] = 20_000
    """Answers waiting for one gateway that does not read; beyond it its stream is closed and it reconnects."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 256
    """Most answers sent as one message."""
    drain_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 2.0
    """On SIGTERM, how long decided answers may take to leave before the streams are closed."""
