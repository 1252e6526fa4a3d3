"""The call object of a handler of the admin API: a connection in a transaction, the principal, and the audit rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

import asyncpg
from sqlalchemy import ClauseElement, ColumnElement, Select, Table, null, select

from contracts.desired_state import Model
from contracts.errors import LimiterUnavailable, NotFound, PermissionDenied
from control.api.config import AdminConfig
from control.api.principal import Principal
from control.router_view.live_fleet import FleetReader, NoFleetReader
from control.sessions.config import ConsoleConfig
from control.slices.startable import SliceCheck
from gateway.limits.counter_snapshot import CounterSnapshot
from gateway.limits.levels import Rule
from storage.audit_log import Change
from storage.roles import Role, covers
from storage.rows import equal, fetchrow, fetchval, record_of
from storage.tables.core import api_keys, organizations, projects

ItemT = TypeVar("ItemT")


class KnownModels(Protocol):
    """Knows the served models, like a gateway's fleet."""

    @property
    def models(self) -> tuple[Model, ...]:
        """All models."""

    @property
    def adapted_models(self) -> frozenset[str]:
        """Models for which some engines take LoRA adapters."""


class CounterReader(Protocol):
    """Reads the counters of limits, like a gateway's limiter."""

    async def standing(self, organization_id: str, rules: Sequence[Rule]) -> tuple[list[CounterSnapshot], bool]:
        """Read the counters of these rules. Also return whether their money is complete. Raises LimiterUnavailable."""
        ...


class NoCounterReader:
    """The counter reader of an admin API without a limiter."""

    async def standing(self, organization_id: str, rules: Sequence[Rule]) -> tuple[list[CounterSnapshot], bool]:
        raise LimiterUnavailable("Nothing is counted here.", retry_after_s=1.0)


class AdminCall:
    """One request. A handler's changes and their audit rows are one transaction: all of them are committed, or none."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        principal: Principal,
        request_id: str,
        pepper: bytes,
        fleet: KnownModels,
        config: AdminConfig,
        counters: CounterReader,
        slices: SliceCheck,
        *,
        if_match: str | None = None,
        console: ConsoleConfig | None = None,
        router: FleetReader | None = None,
    ) -> None:
        self.connection = connection
        self.principal = principal
        self.request_id = request_id
        self.pepper = pepper
        self.fleet = fleet
        self.webhooks = config.webhooks
        self.most = config.most
        self.currency = config.currency
        self.counters = counters
        self.slices = slices
        self.console = console or ConsoleConfig()
        self.router = router or NoFleetReader()
        self.changes: list[Change] = []
        self.if_match = if_match
        """The If-Match header, if the operation takes it."""
        self.dry_run = False
        """Whether the handler changes nothing, so that the request needs no audit row."""
        self.fleet_version: int | None = None
        """Version of the fleet that the response describes."""
        self.to_narrow = "choose a shorter period, or try again later"
        """Advice in the refusal of a read that takes too long."""

    def audit(
        self,
        action: str,
        subject_id: object,
        *,
        organization_id: UUID | None,
        before: object = None,
        after: object = None,
    ) -> None:
        """Add a change to the audit log. Every request that is not a GET adds at least one."""
        self.changes.append(
            Change(
                action=action,
                subject_id=str(subject_id),
                organization_id=organization_id,
                before=before,
                after=after,
            )
        )

    @property
    def scope(self) -> UUID | None:
        """The only organization whose rows the caller may see; None if it may see all."""
        return None if self.principal.operator else self.principal.organization_id

    def placed(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """A column that shows a request's engine, or null for tenants. Tenants name their own sessions; if they knew
        which sessions a candidate serves, they could choose its evidence."""
        return column if self.principal.operator else null()

    def sees(self, organization_id: ColumnElement[Any]) -> ColumnElement[bool]:
        """The condition that keeps tenants apart. Every statement that reads contains it."""
        return equal(organization_id, self.scope)

    async def one(self, kind: type[ItemT], statement: ClauseElement) -> ItemT:
        """Fetch a row that must exist, such as that of an INSERT or UPDATE with RETURNING."""
        row = await fetchrow(self.connection, statement)
        assert row is not None
        return record_of(kind, row)

    async def find(self, kind: type[ItemT], statement: ClauseElement, what: str, which: object) -> ItemT:
        """Fetch a row. Raises NotFound if it does not exist or belongs to another organization."""
        row = await fetchrow(self.connection, statement)
        if row is None:
            raise not_found(what, which)
        return record_of(kind, row)

    async def value(self, statement: ClauseElement) -> Any:
        """Run a statement and return the first column of its first row; None if it returns no row."""
        return await fetchval(self.connection, statement)

    async def require_organization(self, organization_id: UUID) -> UUID:
        """Return the id. Raises NotFound for an unknown organization and for one that the caller may not see alike."""
        return await self._owner_of("organization", organization_id, select(organizations.c.id), organizations)

    async def lock_organization(self, organization_id: UUID) -> None:
        """Lock the organization until the transaction ends, so that concurrent requests cannot pass a limit."""
        statement = select(organizations.c.id).where(organizations.c.id == organization_id)
        await self.value(statement.with_for_update(key_share=True))

    async def organization_of_project(self, project_id: UUID) -> UUID:
        """Return the project's organization. Raises NotFound like `require_organization`."""
        return await self._owner_of("project", project_id, select(projects.c.organization_id), projects)

    async def organization_of_key(self, key_id: UUID) -> UUID:
        """Return the organization of an inference key. Raises NotFound like `require_organization`."""
        owner = select(projects.c.organization_id).select_from(api_keys.join(projects))
        return await self._owner_of("key", key_id, owner, api_keys)

    async def _owner_of(self, what: str, which: UUID, owner: Select[Any], table: Table) -> UUID:
        """owner: a query that selects only the organization's id."""
        found: UUID | None = await self.value(owner.where(table.c.id == which))
        if found is None or self.scope not in (None, found):
            raise not_found(what, which)
        return found

    def require_covers(self, *roles: Role) -> None:
        """Raises PermissionDenied unless the caller's role has every permission of these roles."""
        for role in roles:
            if not covers(self.principal.role, role):
                raise PermissionDenied(
                    f"The role '{self.principal.role.value}' may not grant, change or revoke the role '{role.value}'."
                )


def not_found(what: str, which: object) -> NotFound:
    """The error for an unknown id and for an id of another organization."""
    return NotFound(f"There is no {what} {which}.")
