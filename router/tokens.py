"""Identifies the router's callers by the token with which a connection opens. Engines' tokens are not valid here."""

from __future__ import annotations

import enum
import hmac

import msgspec


class Role(enum.Enum):
    """The rights of a connection."""

    GATEWAY = "gateway"
    """All rights: leases and desired states at the lease port, and the control service."""
    READER = "reader"
    """Read access to the control service: the fleet, and the reasons for placements."""


class RouterTokens(msgspec.Struct, frozen=True):
    """The two tokens by which the router identifies callers."""

    gateway: str
    reader: str

    def role_of(self, token: str) -> Role | None:
        """The role of a token; None if it is unknown. The time does not depend on how much of a token is right."""
        encoded = token.encode()
        gateway = hmac.compare_digest(encoded, self.gateway.encode())
        reader = hmac.compare_digest(encoded, self.reader.encode())
        return Role.GATEWAY if gateway else Role.READER if reader else None
