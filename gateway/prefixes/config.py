"""Settings of what is learnt of prompts' prefixes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Period = Annotated[float, Meta(ge=1, le=86_400)]
Days = Annotated[int, Meta(ge=1, le=36_500)]


class PrefixesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gateway learns of how its tenants' prompts begin: digests and lengths, never texts."""

    enabled: bool = True
    """Compare each prompt with those before it and record a sample. Without it there is no prefix contract, and a
    workload has no sessions and nothing shared."""
    flush_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """How often requests that have ended are compared and their samples written to the database."""
    memory_bytes: Annotated[int, Meta(ge=1_048_576, le=1 << 30)] = 64 * 1024 * 1024
    """Memory of one gateway for the prompts' digests, about 200 bytes for each 64 tokens. Where it is full, the
    organization that holds most forgets its oldest."""


class PrefixUpkeepConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the worker does with the samples."""

    roll_up_every_s: Period = 300.0
    """Seconds between two runs of the sums by hour; each is followed by a look for shares that have dropped."""
    sample_retention_days: Days = 7
    """How long the sample of a single request is kept: some 300 bytes, and 8 more for each 512 tokens of its prompt.
    `slipstream workload` reads them."""
    share_retention_days: Days = 400
    """How long the sums by hour, and the drops, are kept."""
    window_s: Annotated[float, Meta(ge=60, le=86_400)] = 900.0
    """The latest stretch whose share is compared with the hours before."""
    usual_hours: Annotated[int, Meta(ge=1, le=720)] = 24
    """How many hours before it say what is usual."""
    least_requests: Annotated[int, Meta(ge=1)] = 50
    """Fewer requests, in the stretch or in an hour, say nothing."""
    dropped_to: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    """A share has dropped at this part of what is usual or less."""
    recovered_to: Annotated[float, Meta(gt=0, le=1)] = 0.75
    """The drop is over at this part of what was usual before it."""
