"""Settings for tokenization in one process."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class TokenizingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on the prompts that are tokenized at a time, and that may wait."""

    threads: Annotated[int, Meta(ge=1, le=64)] = 2
    """Prompts tokenized at a time, at most one of each organization: with two or more, an organization that floods a
    gateway with long prompts leaves a thread to the others. Short prompts (4 kB) need none."""
    organization_jobs: Fixed[Annotated[int, Meta(ge=1, le=100_000)]] = 1_024
    """Prompts of one organization that may wait for a thread or hold one; further ones are refused with 429."""
    organization_bytes: Fixed[Annotated[int, Meta(ge=1_024, le=1 << 40)]] = 32 * 1024 * 1024
    """Bytes of those prompts together; a single prompt is always accepted."""
