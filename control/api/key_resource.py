"""Common parts of inference keys and admin keys: states, expiry, and rotation with two live secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import ColumnElement, Table, case, exists, func, or_, select

from contracts.errors import Conflict, InvalidField
from control.api.call import AdminCall
from control.api.resource import Resource
from control.api.schemas import Body, PageQuery
from gateway.auth.keys import mint

MAX_OVERLAP_S = 30 * 86_400
CLOCKS_APART = timedelta(days=1)
"""Upper bound of the difference between two clocks of a deployment."""


class KeyState(StrEnum):
    """State of a key."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class AnyKey(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of both kinds, without the secret."""

    id: UUID
    organization_id: UUID
    name: str
    display: str
    state: KeyState
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    previous_expires_at: datetime | None


KeyT = TypeVar("KeyT", bound=AnyKey)


class KeyQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    state: KeyState | None = None


class Rotation(Body, frozen=True, kw_only=True):
    """Change to a new secret."""

    overlap_s: Annotated[int, Meta(ge=0, le=MAX_OVERLAP_S)] = 86_400
    """Seconds for which the old secret stays valid; with 0, it ends at once."""
    end_previous: bool = False
    """End the overlap of an earlier rotation, if it has not ended yet: a key never has three secrets."""

    def require_room(self, previous_until: datetime | None, verb: str) -> None:
        """Raises Conflict for a third live secret. previous_until: the end of an earlier rotation's overlap; verb: what
        the old secret does until then."""
        if previous_until is not None and previous_until > datetime.now(UTC) and not self.end_previous:
            raise Conflict(
                f"The secret before the last rotation still {verb} until {previous_until.isoformat()}. Wait, or send "
                "'end_previous': true to end it now.",
                param="end_previous",
            )

    @property
    def until(self) -> datetime:
        """End of an overlap that begins now. Without an overlap, a time that has passed by every clock of the
        deployment, as each gateway and the database use their own."""
        return datetime.now(UTC) + (timedelta(seconds=self.overlap_s) if self.overlap_s else -CLOCKS_APART)


def require_future(expires_at: datetime | None) -> None:
    """Raises InvalidField for a time that has passed."""
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise InvalidField(f"Invalid value for 'expires_at': {expires_at.isoformat()} has passed.", param="expires_at")


def state_of(table: Table) -> ColumnElement[str]:
    """The key's KeyState, in SQL."""
    return case(
        (table.c.revoked_at.is_not(None), KeyState.REVOKED.value),
        (table.c.expires_at <= func.now(), KeyState.EXPIRED.value),
        else_=KeyState.ACTIVE.value,
    )


@dataclass(frozen=True, kw_only=True)
class SecretResource(Resource[KeyT]):
    """Keys of one kind, whose secrets begin with `prefix`."""

    prefix: str

    async def make(self, call: AdminCall, **values: Any) -> tuple[KeyT, str]:
        """Create a key, and return it with its secret. Raises InvalidField for an `expires_at` that has passed."""
        require_future(values["expires_at"])
        minted = mint(call.pepper, self.prefix)
        return await self.create(call, hash=minted.hash, display=minted.display, **values), minted.secret

    async def known(self, call: AdminCall, stored_hash: bytes) -> bool:
        """Whether a key of any owner has this hash, or had it before its last rotation."""
        either = or_(self.table.c.hash == stored_hash, self.table.c.previous_hash == stored_hash)
        return bool(await call.value(select(exists().where(either))))

    async def rotate(self, call: AdminCall, key_id: UUID, rotation: Rotation) -> tuple[KeyT, str]:
        """Create a new secret, and keep the current one as the previous secret.

        Raises Conflict for a revoked key, and for a third live secret.
        """
        before = await self.find(call, key_id, for_update=True)
        if before.revoked_at is not None:
            raise Conflict("This key has been revoked, which is final; create a new one.")
        rotation.require_room(before.previous_expires_at, "opens")
        minted = mint(call.pepper, self.prefix)
        previous = {"previous_hash": self.table.c.hash, "previous_expires_at": rotation.until}
        current = {"hash": minted.hash, "display": minted.display}
        return await self.update(call, before, {**current, **previous}, "rotate"), minted.secret

    async def revoke(self, call: AdminCall, before: KeyT) -> KeyT:
        """Revoke the key and all its secrets permanently. An earlier revocation keeps its time."""
        since = func.coalesce(self.table.c.revoked_at, func.now())
        return await self.update(call, before, {"revoked_at": since}, "revoke")
