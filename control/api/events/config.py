"""Settings of the admin API's events."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class EventsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Streams that notify pages of changes, `/admin/v1/events`."""

    max_streams: Fixed[Annotated[int, Meta(ge=0, le=10_000)]] = 500
    """Open at one gateway at once; a further one is refused with 429, and its page asks every few seconds instead.
    0: none."""
    max_streams_per_principal: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 4
    """Of these, one member's or service account's at most. Browsers open six connections to a gateway at most, over
    HTTP/1.1, and pages need some."""
    max_streams_per_organization: Fixed[Annotated[int, Meta(ge=1, le=10_000)]] = 20
    """Of these, those of one organization's members and service accounts. Operators have no such limit, and a tenth of
    `max_streams` is theirs alone."""
    look_every_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """Interval at which a gateway checks for changes while a stream is open."""
    beat_s: Annotated[float, Meta(gt=0, le=60)] = 5.0
    """Interval at which a stream proves that it is alive, and that its client still has access: it ends within this
    time of a sign-out or a revocation."""
    longest_s: Fixed[Annotated[float, Meta(gt=0, le=86_400)]] = 900.0
    """A stream ends after this time; its client opens another one."""
