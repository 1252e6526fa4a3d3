"""Finds, lists, creates, changes and deletes a table's rows for the admin API. Each change has an audit row, and
tenants see only their own organization's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET
from sqlalchemy import ColumnElement, FromClause, Select, Table, delete, func, insert, select, true, update

from contracts.errors import Conflict
from control.api.call import AdminCall
from control.api.pages import page_of
from control.api.schemas import Deleted, Page, PageQuery
from storage.rows import columns_of, sorted_unique


class Item(Protocol):
    """A row as the API returns it."""

    @property
    def id(self) -> UUID:
        """The row's primary key."""


ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True)
class Bound:
    """A limit on the number of an organization's objects of one kind. setting: its name in `AdminConfig.most`."""

    setting: str
    things: str
    """The objects' name in messages, in the plural."""
    make_room: str
    """The verb of the advice, such as "`revoke` one first"."""
    counted: ColumnElement[bool] = field(default_factory=true)
    """Condition of the rows that count."""


@dataclass(frozen=True)
class Resource(Generic[ItemT]):
    """One kind of object that organizations own. The fields of its struct define the columns."""

    noun: str
    """The object's name in messages, and, with `_` for spaces, in the audit log's actions."""
    shown: type[ItemT]
    table: Table
    owners: Table
    """Table whose `organization_id` is the owner; organizations own themselves."""
    joined: FromClause | None = None
    """Tables of the fields and the owner. By default, `table`, joined with `owners` if that is another table."""
    computed: Mapping[str, ColumnElement[Any]] = field(default_factory=dict)
    """Fields of `shown` that are not columns of the same name."""
    only: ColumnElement[bool] = field(default_factory=true)
    """Condition on the table's rows."""
    bound: Bound | None = None
    """None if the number is not limited."""

    async def find(self, call: AdminCall, item_id: UUID, *, for_update: bool = False) -> ItemT:
        """Find an object. Raises NotFound if it does not exist or belongs to another organization."""
        statement = self._visible(call).where(self.table.c.id == item_id)
        statement = statement.with_for_update(of=self.table) if for_update else statement
        return await call.find(self.shown, statement, self.noun, item_id)

    async def page(self, call: AdminCall, query: PageQuery, *narrower: ColumnElement[bool]) -> Page[ItemT]:
        """A page of the visible rows that match all of `narrower`, newest first."""
        statement = self._visible(call).where(*narrower)
        return await page_of(call.connection, self.shown, statement, query, self.table.c.created_at, self.table.c.id)

    async def require_room(self, call: AdminCall, organization_id: UUID) -> None:
        """Raises Conflict for an organization at its limit. The check holds until the end of the transaction."""
        assert self.bound is not None
        most: int = getattr(call.most, self.bound.setting)
        await call.lock_organization(organization_id)
        own = select(func.count()).select_from(self._joined).where(self._owner == organization_id)
        if await call.value(own.where(self.only, self.bound.counted)) >= most:
            raise Conflict(
                f"An organization has at most {most} {self.bound.things} (gateway.admin.most.{self.bound.setting}); "
                f"{self.bound.make_room} one first, or ask the deployment's operator for more."
            )

    async def create(self, call: AdminCall, **values: Any) -> ItemT:
        """Create an object with these values."""
        made = await call.value(insert(self.table).values(**values).returning(self.table.c.id))
        after = await self.find(call, made)
        self._audit(call, "create", after, after=after)
        return after

    async def update(self, call: AdminCall, before: ItemT, values: Mapping[str, Any], action: str = "update") -> ItemT:
        """Set these columns. before: the row as found, locked for update."""
        if values:
            await call.value(update(self.table).where(self.table.c.id == before.id).values(**values))
        after = await self.find(call, before.id)
        self._audit(call, action, after, before=before, after=after)
        return after

    async def delete(self, call: AdminCall, before: ItemT) -> Deleted:
        """Delete the row. before: as found, locked for update."""
        await call.value(delete(self.table).where(self.table.c.id == before.id))
        self._audit(call, "delete", before, before=before)
        return Deleted(id=before.id)

    def values_of(self, body: msgspec.Struct) -> dict[str, Any]:
        """The columns that a body sets, without omitted ones. `disabled` becomes a time."""
        fields = {name: getattr(body, name) for name in body.__struct_fields__}
        values = {name: value for name, value in fields.items() if value is not UNSET}
        if "disabled" in values:
            since = func.coalesce(self.table.c.disabled_at, func.now())
            values["disabled_at"] = since if values.pop("disabled") else None
        return {name: sorted_unique(value) if isinstance(value, list) else value for name, value in values.items()}

    def _visible(self, call: AdminCall) -> Select[Any]:
        columns = columns_of(self.shown, self.table, self.owners, **self.computed)
        return select(*columns).select_from(self._joined).where(call.sees(self._owner), self.only)

    @property
    def _owner(self) -> ColumnElement[Any]:
        return self.owners.c.get("organization_id", self.owners.c.id)

    @property
    def _joined(self) -> FromClause:
        if self.joined is not None:
            return self.joined
        return self.table if self.owners is self.table else self.table.join(self.owners)

    def _audit(self, call: AdminCall, action: str, item: ItemT, **states: ItemT) -> None:
        organization_id = getattr(item, "organization_id", item.id)
        call.audit(f"{self.noun.replace(' ', '_')}.{action}", item.id, organization_id=organization_id, **states)
