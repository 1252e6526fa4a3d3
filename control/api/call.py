"""What a handler of the admin API is given: a connection in a transaction, who asks, and a place for the audit log."""

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
    """What serves models: a gateway's fleet."""

    @property
    def models(self) -> tuple[Model, ...]:
        """All of them."""

    @property
    def adapted_models(self) -> frozenset[str]:
        """Those that some of their engines take LoRA adapters of."""


class CounterReader(Protocol):
    """Where limits are counted: a gateway's limiter."""

    async def standing(self, organization_id: str, rules: Sequence[Rule]) -> tuple[list[CounterSnapshot], bool]:
        """What is left of these rules, and whether all money in it is counted. Raises LimiterUnavailable."""
        ...


class NoCounterReader:
    """For an admin API without a limiter."""

    async def standing(self, organization_id: str, rules: Sequence[Rule]) -> tuple[list[CounterSnapshot], bool]:
        raise LimiterUnavailable("Nothing is counted here.", retry_after_s=1.0)


class AdminCall:
    """One request. Everything a handler does happens in one transaction: all of it, with its audit rows, or nothing."""

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
        """The header, where the operation takes it."""
        self.dry_run = False
        """The handler was asked to change nothing, so the log is told nothing."""
        self.fleet_version: int | None = None
        """Of the fleet that the answer is about."""
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
        """Note a change for the log, as `Change` says. Every request that is not a GET notes at least one."""
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
        """The one organization whose rows may be seen; None: all."""
        return None if self.principal.operator else self.principal.organization_id

    def placed(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """A column that tells which engine served a request; null for tenants, who name their sessions themselves and
        would choose what a release is judged by, could they tell which of them its candidate serves."""
        return column if self.principal.operator else null()

    def sees(self, organization_id: ColumnElement[Any]) -> ColumnElement[bool]:
        """The condition that keeps tenants apart; in every statement that reads."""
        return equal(organization_id, self.scope)

    async def one(self, kind: type[ItemT], statement: ClauseElement) -> ItemT:
        """The row there must be, as of an INSERT or UPDATE that returns it."""
        row = await fetchrow(self.connection, statement)
        assert row is not None
        return record_of(kind, row)

    async def find(self, kind: type[ItemT], statement: ClauseElement, what: str, which: object) -> ItemT:
        """The row, if there is one. Raises NotFound, for another organization's too."""
        row = await fetchrow(self.connection, statement)
        if row is None:
            raise not_found(what, which)
        return record_of(kind, row)

    async def value(self, statement: ClauseElement) -> Any:
        """The first column of the first row, None without one; also for a statement that returns nothing."""
        return await fetchval(self.connection, statement)

    async def require_organization(self, organization_id: UUID) -> UUID:
        """Its id. Raises NotFound for an organization that is not, or is somebody else's: nobody learns which."""
        return await self._owner_of("organization", organization_id, select(organizations.c.id), organizations)

    async def lock_organization(self, organization_id: UUID) -> None:
        """Until the end of the transaction: of two requests at once not both can be the last that fits."""
        statement = select(organizations.c.id).where(organizations.c.id == organization_id)
        await self.value(statement.with_for_update(key_share=True))

    async def organization_of_project(self, project_id: UUID) -> UUID:
        """Whose project it is. Raises NotFound like `require_organization`."""
        return await self._owner_of("project", project_id, select(projects.c.organization_id), projects)

    async def organization_of_key(self, key_id: UUID) -> UUID:
        """Whose inference key it is. Raises NotFound like `require_organization`."""
        owner = select(projects.c.organization_id).select_from(api_keys.join(projects))
        return await self._owner_of("key", key_id, owner, api_keys)

    async def _owner_of(self, what: str, which: UUID, owner: Select[Any], table: Table) -> UUID:
        """owner: selects the organization's id alone."""
        found: UUID | None = await self.value(owner.where(table.c.id == which))
        if found is None or self.scope not in (None, found):
            raise not_found(what, which)
        return found

    def require_covers(self, *roles: Role) -> None:
        """Raises PermissionDenied unless the caller's role may do all that these may."""
        for role in roles:
            if not covers(self.principal.role, role):
                raise PermissionDenied(
                    f"The role '{self.principal.role.value}' may not give, change or take the role '{role.value}'."
                )


def not_found(what: str, which: object) -> NotFound:
    """The error for an id that is unknown, or somebody else's."""
    return NotFound(f"There is no {what} {which}.")
