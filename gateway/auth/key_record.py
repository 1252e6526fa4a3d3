"""What is known about a key once it has been looked up."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from contracts.generation import Caller
from gateway.limits.key_limits import KeyLimits


class KeyRecord(msgspec.Struct, frozen=True):
    """A key that was issued and not revoked. It may be past `expires_at`: that is checked on every use."""

    caller: Caller
    limits: KeyLimits
    expires_at: float | None = None
    """Epoch seconds; None: never."""


class Refusal(StrEnum):
    """Why the database knows no such record."""

    UNKNOWN = "unknown"
    REVOKED = "revoked"
