"""What one API key may use. Read by `gateway/auth` from the key's row, enforced by `gateway/limits`."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_LIMIT = 1_000_000_000
"""Above this the limiter's arithmetic would leave the integers a double holds exactly (see script.lua)."""

Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)]


class KeyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None: not limited. A key that may do nothing is revoked, not given a limit of 0 (which refuses everything)."""

    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    """Prompt and output tokens together; while a request runs, its largest possible output counts."""
    max_concurrency: Limit | None = None
    """Requests of the key that run at the same time, over all gateways."""
