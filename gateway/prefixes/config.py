"""Settings of the measurement of prompts' prefixes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class PrefixesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measurement of how tenants' prompts begin: digests and lengths, never texts."""

    enabled: bool = True
    """Compare each prompt with those before it and record a sample. Without it there is no prefix contract, and a
    workload has no sessions and nothing shared."""
    flush_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 0.5
    """Interval at which ended requests are compared and their samples written to the database."""
    memory_bytes: Fixed[Annotated[int, Meta(ge=1_048_576, le=1 << 30)]] = 64 * 1024 * 1024
    """Memory of one gateway for the prompts' digests, about 200 bytes for each 64 tokens. Where it is full, the
    organization that holds most forgets its oldest."""
