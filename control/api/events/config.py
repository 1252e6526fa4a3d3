"""Settings of the admin API's events."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class EventsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Streams that notify pages of changes, `/admin/v1/events`."""

    max_streams: Fixed[Annotated[int, Meta(ge=0, le=10_000)]] = 500
    """Maximum number of open streams of one gateway. A further one is refused with 429, and its page polls every few
    seconds instead. 0: none."""
    max_streams_per_principal: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 4
    """Maximum number of open streams of one member or service account. Browsers open at most six HTTP/1.1 connections
    to a gateway, and pages need some of them."""
    max_streams_per_organization: Fixed[Annotated[int, Meta(ge=1, le=10_000)]] = 20
    """Maximum number of open streams of one organization's members and service accounts. Operators have no such limit,
    and a tenth of `max_streams` is reserved for them."""
    look_every_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """Interval at which a gateway checks for changes while a stream is open."""
    beat_s: Annotated[float, Meta(gt=0, le=60)] = 5.0
    """Interval at which a stream sends a sign of life and checks that its client still has access. The stream ends
    within this time after a sign-out or a revocation."""
    longest_s: Fixed[Annotated[float, Meta(gt=0, le=86_400)]] = 900.0
    """Time after which a stream ends. Its client then opens another one."""
