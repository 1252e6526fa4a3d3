"""Settings for tokenization in one process."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class TokenizingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on prompts that are being tokenized or wait to be tokenized."""

    threads: Annotated[int, Meta(ge=1, le=64)] = 2
    """Number of prompts tokenized at the same time, at most one of each organization. With two or more, an organization
    that floods a gateway with long prompts leaves a thread to the others. Most prompts with at most 4 kB
    of new text need no thread."""
    organization_jobs: Fixed[Annotated[int, Meta(ge=1, le=100_000)]] = 1_024
    """Maximum number of one organization's prompts that wait for a thread or use one. Further ones are refused with
    429."""
    organization_bytes: Fixed[Annotated[int, Meta(ge=1_024, le=1 << 40)]] = 32 * 1024 * 1024
    """Maximum size of those prompts together. A single prompt is always accepted."""
