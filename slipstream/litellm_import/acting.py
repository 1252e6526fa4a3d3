"""Creates the objects of a plan that this deployment lacks, in one transaction, by the admin API's functions.

It changes no existing object: a second import finds everything and creates nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import select

from contracts.desired_state import DesiredState
from control.api.call import AdminCall
from control.billing.prices import NewPrice, PriceQuery, create_price, list_prices
from control.fleet import edits
from control.fleet.fleet_edit import EditQuery, edited, in_force
from control.tenants import limit_store
from control.tenants.keys import ImportedKey, import_key
from control.tenants.limits import ALL_TIERS, NewLimits, put_limits
from control.tenants.organizations import OrganizationChanges, update_organization
from control.tenants.projects import NewProject, ProjectChanges, create_project, update_project
from gateway.limits.levels import Level, Limits
from slipstream.administration import converted
from slipstream.litellm_import.plan import (
    Notes,
    Plan,
    PlannedModel,
    PlannedOrganization,
    PlannedPrice,
    PlannedProject,
)
from slipstream.tenants import ensure_organization, only
from storage.rows import fetch
from storage.tables.core import projects


class Made(msgspec.Struct, frozen=True):
    """One object. new: whether this import created it."""

    kind: str
    name: str
    new: bool


class Import:
    """One import into the deployment of `call`."""

    def __init__(self, call: AdminCall, notes: Notes) -> None:
        self._call = call
        self._notes = notes
        self.made: list[Made] = []

    async def run(self, plan: Plan) -> None:
        """Create missing objects. Raises the admin API's errors, which roll the transaction back."""
        await self._models(plan.models)
        for each in plan.models:
            if each.price is not None:
                await self._price(each.model.name, each.price)
        for organization in plan.organizations:
            await self._organization(organization)

    def _add(self, kind: str, name: str, new: bool) -> bool:
        self.made.append(Made(kind, name, new))
        return new

    def _kept(self, where: str, what: str) -> None:
        self._notes.differs(where, f"{what} here; it stays as it is", "change it by hand if LiteLLM's is meant")

    async def _models(self, planned: list[PlannedModel]) -> None:
        """Create all missing pools and models in one version of the fleet."""
        state = (await in_force(self._call)).state
        missing = [
            each for each in planned if self._add("model", each.model.name, state.model(each.model.name) is None)
        ]
        for each in planned:
            existing = state.model(each.model.name)
            if existing is not None and existing != each.model:
                self._kept(f"model {each.model.name}", "a model or an alias of this name is")
        if not missing:
            return

        def edit(before: DesiredState) -> DesiredState:
            for each in missing:
                aliases = tuple(alias for alias in each.model.aliases if before.model(alias) is None)
                before = edits.put_pool(before, each.pool)
                before = edits.put_model(before, msgspec.structs.replace(each.model, aliases=aliases))
            return before

        await edited(self._call, EditQuery(), "litellm.import", edit)
        self._call.fleet = (await in_force(self._call)).state

    async def _price(self, model: str, price: PlannedPrice) -> None:
        existing = (await list_prices(self._call, PriceQuery(model=model, limit=1))).data
        if self._add("price", model, not existing):
            await create_price(self._call, NewPrice(model=model, **msgspec.structs.asdict(price)))
        elif (existing[0].input_micro, existing[0].output_micro) != (price.input_micro, price.output_micro):
            self._kept(f"price of {model}", "another price is")

    async def _organization(self, planned: PlannedOrganization) -> None:
        organization_id, new = await ensure_organization(self._call, planned.name)
        self._add("organization", planned.name, new)
        await self._limits(Level.ORGANIZATION, organization_id, planned.name, planned.limits)
        for project in planned.projects.values():
            await self._project(organization_id, planned.name, project)
        if planned.disabled and new:
            await update_organization(self._call, organization_id, OrganizationChanges(disabled=True))

    async def _project(self, organization_id: UUID, owner: str, planned: PlannedProject) -> None:
        table = projects.c
        found = await fetch(
            self._call.connection,
            select(table.id, table.models).where(table.organization_id == organization_id, table.name == planned.name),
        )
        label = f"{owner} / {planned.name}"
        if self._add("project", label, not found):
            body = converted({"name": planned.name, "models": planned.models}, NewProject)
            project_id = (await create_project(self._call, organization_id, body)).id
        else:
            project_id = only("project", planned.name, [row["id"] for row in found])
            if found[0]["models"] != planned.models:
                self._kept(f"project {label}", "a project of this name may use other models")
        await self._limits(Level.PROJECT, project_id, label, planned.limits)
        for key in planned.keys:
            body_of_key = converted(
                {"name": key.name, "scopes": key.scopes, "expires_at": key.expires_at, "display": key.display,
                 "sha256": key.sha256},
                ImportedKey,
            )  # fmt: skip
            made = await import_key(self._call, project_id, body_of_key)
            self._add("key", f"{label} / {key.name}", made is not None)
            if made is not None:
                await self._limits(Level.KEY, made.id, f"key {key.name}", key.limits)
        if planned.disabled and not found:
            await update_project(self._call, project_id, ProjectChanges(disabled=True))

    async def _limits(self, level: Level, subject_id: UUID, name: str, limits: Limits) -> None:
        if not limits:
            return
        rules = await limit_store.rules_of(self._call.connection, level, subject_id)
        existing = next((rule.limits for rule in rules if rule.tier is None), None)
        if self._add("limits", f"{level.value} {name}", existing is None):
            values: dict[str, Any] = msgspec.structs.asdict(limits)
            await put_limits(self._call, level, subject_id, ALL_TIERS, NewLimits(**values))
        elif existing != limits:
            self._kept(f"limits of {level.value} {name}", "other limits are set")
