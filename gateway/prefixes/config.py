"""Settings of the measurement of prompts' prefixes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class PrefixesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measurement of shared prompt prefixes. It stores digests and lengths, never texts."""

    enabled: bool = True
    """Compare each prompt with earlier ones and record a sample. If this is off, there is no prefix contract, and a
    workload contains no sessions and no shared prefixes."""
    flush_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 0.5
    """Interval at which finished requests are compared and their samples written to the database."""
    memory_bytes: Fixed[Annotated[int, Meta(ge=1_048_576, le=1 << 30)]] = 64 * 1024 * 1024
    """Memory of one gateway for prompts' digests, about 200 bytes for each 64 tokens. When it is full, the oldest
    digests of the organization with the most are removed."""
