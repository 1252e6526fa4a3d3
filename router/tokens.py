"""Who may speak to the router, told by the token a connection opens with. Engines' tokens open nothing here."""

from __future__ import annotations

import enum
import hmac

import msgspec


class Role(enum.Enum):
    """What a connection may do."""

    GATEWAY = "gateway"
    """Everything: lease and publish desired states at the lease port; the control service."""
    READER = "reader"
    """The control service's questions: the fleet, and why requests went where they did."""


class RouterTokens(msgspec.Struct, frozen=True):
    """The two tokens the router knows callers by."""

    gateway: str
    reader: str

    def role_of(self, token: str) -> Role | None:
        """None: a stranger. Takes as long for a token that is nearly right as for any other."""
        given = token.encode()
        gateway = hmac.compare_digest(given, self.gateway.encode())
        reader = hmac.compare_digest(given, self.reader.encode())
        return Role.GATEWAY if gateway else Role.READER if reader else None
