"""The callers of the router, identified by the token a connection opens with. Engines' tokens open nothing here."""

from __future__ import annotations

import enum
import hmac

import msgspec


class Role(enum.Enum):
    """The rights of a connection."""

    GATEWAY = "gateway"
    """All rights: lease and publish desired states at the lease port; the control service."""
    READER = "reader"
    """Read access to the control service: the fleet, and the reasons for placements."""


class RouterTokens(msgspec.Struct, frozen=True):
    """The two tokens by which the router identifies callers."""

    gateway: str
    reader: str

    def role_of(self, token: str) -> Role | None:
        """None: unknown token. Takes as long for an almost right token as for any other."""
        given = token.encode()
        gateway = hmac.compare_digest(given, self.gateway.encode())
        reader = hmac.compare_digest(given, self.reader.encode())
        return Role.GATEWAY if gateway else Role.READER if reader else None
