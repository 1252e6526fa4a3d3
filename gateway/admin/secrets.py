"""Inference keys and admin keys, as far as they are alike: states, expiry, and rotation with two live secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import ColumnElement, Select, Table, case, func, insert, select, update

from contracts.errors import Conflict, InvalidField
from gateway.admin.bodies import Body, Page, PageQuery
from gateway.admin.call import AdminCall
from gateway.admin.pages import page_of
from gateway.admin.rows import columns_of, equal
from gateway.auth.keys import mint

MAX_OVERLAP_S = 30 * 86_400


class KeyState(StrEnum):
    """Whether a key opens anything."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class AnyKey(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds have, without the secret."""

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
    """How to change over to a new secret."""

    overlap_s: Annotated[int, Meta(ge=0, le=MAX_OVERLAP_S)] = 86_400
    """Seconds for which the old secret still opens; 0: not from now on."""
    end_previous: bool = False
    """The secret of an earlier rotation may still be in its overlap; there are never three, so say that it may end."""

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
        """When the overlap ends that begins now."""
        return datetime.now(UTC) + timedelta(seconds=self.overlap_s)


def require_future(expires_at: datetime | None) -> None:
    """Raises InvalidField for a moment that has passed."""
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise InvalidField(f"Invalid value for 'expires_at': {expires_at.isoformat()} has passed.", param="expires_at")


def state_of(table: Table) -> ColumnElement[str]:
    """KeyState in SQL."""
    return case(
        (table.c.revoked_at.is_not(None), KeyState.REVOKED.value),
        (table.c.expires_at <= func.now(), KeyState.EXPIRED.value),
        else_=KeyState.ACTIVE.value,
    )


class KeyKind(NamedTuple, Generic[KeyT]):
    """One of both. noun: as people call it; owners: the table that says whose it is; prefix: of its secrets; computed:
    fields of `shown` that are no columns of the same name."""

    noun: str
    shown: type[KeyT]
    table: Table
    owners: Table
    prefix: str
    computed: Mapping[str, ColumnElement[Any]] = MappingProxyType({})

    async def page(self, call: AdminCall, query: KeyQuery, *narrower: ColumnElement[bool]) -> Page[KeyT]:
        """Newest first."""
        statement = self._visible(call).where(equal(state_of(self.table), query.state), *narrower)
        return await page_of(call.connection, self.shown, statement, query, self.table.c.created_at, self.table.c.id)

    async def find(self, call: AdminCall, key_id: UUID, *, for_update: bool = False) -> KeyT:
        """Raises NotFound, for another organization's principal too."""
        statement = self._visible(call).where(self.table.c.id == key_id)
        statement = statement.with_for_update(of=self.table) if for_update else statement
        return await call.find(self.shown, statement, self.noun, key_id)

    async def create(self, call: AdminCall, **values: Any) -> tuple[KeyT, str]:
        """The new one and its secret. Raises InvalidField for an `expires_at` that has passed."""
        require_future(values["expires_at"])
        minted = mint(call.pepper, self.prefix)
        new = insert(self.table).values(hash=minted.hash, display=minted.display, **values)
        key = await self.find(call, await call.value(new.returning(self.table.c.id)))
        self._audit(call, "create", after=key)
        return key, minted.secret

    async def update(self, call: AdminCall, before: KeyT, action: str, **values: Any) -> KeyT:
        """The changed one. action: for the audit log."""
        await call.value(update(self.table).where(self.table.c.id == before.id).values(**values))
        after = await self.find(call, before.id)
        self._audit(call, action, before=before, after=after)
        return after

    async def rotate(self, call: AdminCall, key_id: UUID, rotation: Rotation) -> tuple[KeyT, str]:
        """Put a new secret in the first place and the one so far in the second.

        Raises Conflict for a revoked key, and for a third live secret.
        """
        before = await self.find(call, key_id, for_update=True)
        if before.revoked_at is not None:
            raise Conflict("This key has been revoked, for good; make a new one.")
        rotation.require_room(before.previous_expires_at, "opens")
        minted = mint(call.pepper, self.prefix)
        second = {"previous_hash": self.table.c.hash, "previous_expires_at": rotation.until}
        after = await self.update(call, before, "rotate", hash=minted.hash, display=minted.display, **second)
        return after, minted.secret

    async def revoke(self, call: AdminCall, before: KeyT) -> KeyT:
        """End it and all its secrets, for good; what was revoked before keeps its moment."""
        return await self.update(call, before, "revoke", revoked_at=func.coalesce(self.table.c.revoked_at, func.now()))

    def _visible(self, call: AdminCall) -> Select[Any]:
        states = {"state": state_of(self.table), **self.computed}
        columns = columns_of(self.shown, self.table, self.owners, **states)
        joined = self.table.join(self.owners)
        return select(*columns).select_from(joined).where(call.sees(self.owners.c.organization_id))

    def _audit(self, call: AdminCall, action: str, *, after: KeyT, before: KeyT | None = None) -> None:
        subject = f"{self.noun.replace(' ', '_')}.{action}"
        call.audit(subject, after.id, organization_id=after.organization_id, before=before, after=after)
