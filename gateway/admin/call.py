"""What a handler of the admin API is given: a connection in a transaction, who asks, and a place for the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

import asyncpg

from contracts.desired_state import Model
from contracts.errors import LimiterUnavailable, NotFound, PermissionDenied
from gateway.admin.audit.log import Change
from gateway.admin.config import WebhooksConfig
from gateway.admin.pages import Where
from gateway.admin.principal import Principal
from gateway.limits.counter_snapshot import CounterSnapshot
from gateway.limits.levels import Rule
from gateway.tenants.roles import Role, covers


class KnownModels(Protocol):
    """What serves models: a gateway's fleet."""

    models: tuple[Model, ...]


class Counters(Protocol):
    """Where limits are counted: a gateway's limiter."""

    async def standing(self, organization_id: str, rules: Sequence[Rule]) -> tuple[list[CounterSnapshot], bool]:
        """What is left of these rules, and whether all money in it is counted. Raises LimiterUnavailable."""
        ...


class NoCounters:
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
        webhooks: WebhooksConfig,
        counters: Counters,
    ) -> None:
        self.connection = connection
        self.principal = principal
        self.request_id = request_id
        self.pepper = pepper
        self.fleet = fleet
        self.webhooks = webhooks
        self.counters = counters
        self.changes: list[Change] = []

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
        """The one organization whose rows may be seen; None: all. For a query: `($2::uuid IS NULL OR …id = $2)`."""
        return None if self.principal.operator else self.principal.organization_id

    def where(self, column: str = "organization_id") -> Where:
        """Conditions of a list, with the one that keeps tenants apart already among them."""
        where = Where()
        where.add_if(f"{column} = {{}}", self.scope)
        return where

    async def require_organization(self, organization_id: UUID) -> None:
        """Raises NotFound for an organization that is not, or is somebody else's: nobody learns which."""
        found = self.scope in (None, organization_id) and await self.connection.fetchval(
            "SELECT true FROM gateway.organizations WHERE id = $1", organization_id
        )
        if not found:
            raise not_found("organization", organization_id)

    async def organization_of_project(self, project_id: UUID) -> UUID:
        """Whose project it is. Raises NotFound like `require_organization`."""
        found: UUID | None = await self.connection.fetchval(
            "SELECT organization_id FROM gateway.projects WHERE id = $1 AND ($2::uuid IS NULL OR organization_id = $2)",
            project_id,
            self.scope,
        )
        if found is None:
            raise not_found("project", project_id)
        return found

    async def organization_of_key(self, key_id: UUID) -> UUID:
        """Whose inference key it is. Raises NotFound like `require_organization`."""
        found: UUID | None = await self.connection.fetchval(
            "SELECT organization_id FROM gateway.api_keys JOIN gateway.projects ON projects.id = project_id"
            " WHERE api_keys.id = $1 AND ($2::uuid IS NULL OR organization_id = $2)",
            key_id,
            self.scope,
        )
        if found is None:
            raise not_found("key", key_id)
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
