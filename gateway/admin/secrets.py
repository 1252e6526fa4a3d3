"""What inference keys and admin keys have in common: states, expiry, and rotation with two live secrets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from contracts.errors import Conflict, InvalidField
from gateway.admin.bodies import Body
from gateway.admin.call import AdminCall
from gateway.auth.keys import MintedKey

MAX_OVERLAP_S = 30 * 86_400


class KeyState(StrEnum):
    """Whether a key opens anything."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


STATE = """CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'active' END"""
"""KeyState in SQL, of any table with these two columns."""


class Rotation(Body, frozen=True, kw_only=True):
    """How to change over to a new secret."""

    overlap_s: Annotated[int, Meta(ge=0, le=MAX_OVERLAP_S)] = 86_400
    """Seconds for which the old secret still opens; 0: not from now on."""
    end_previous: bool = False
    """The secret of an earlier rotation may still be in its overlap; there are never three, so say that it may end."""


def require_future(expires_at: datetime | None) -> None:
    """Raises InvalidField for a moment that has passed."""
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise InvalidField(f"Invalid value for 'expires_at': {expires_at.isoformat()} has passed.", param="expires_at")


async def rotate(call: AdminCall, table: str, key_id: UUID, minted: MintedKey, rotation: Rotation) -> None:
    """Put the new secret in the first place and the one so far in the second.

    table: `api_keys` or `admin_keys`. Raises Conflict for a revoked key, and for a third live secret.
    """
    row = await call.connection.fetchrow(
        f"SELECT revoked_at, previous_expires_at FROM gateway.{table} WHERE id = $1 FOR UPDATE", key_id
    )
    if row["revoked_at"] is not None:
        raise Conflict("This key has been revoked, for good; make a new one.")
    now = datetime.now(UTC)
    until = row["previous_expires_at"]
    if until is not None and until > now and not rotation.end_previous:
        raise Conflict(
            f"The secret before the last rotation still opens until {until.isoformat()}. Wait, or send "
            "'end_previous': true to end it now.",
            param="end_previous",
        )
    await call.connection.execute(
        f"UPDATE gateway.{table} SET previous_hash = hash, previous_expires_at = $2, hash = $3, display = $4"
        " WHERE id = $1",
        key_id,
        now + timedelta(seconds=rotation.overlap_s),
        minted.hash,
        minted.display,
    )
