"""LoRA adapters of an organization or of one of its projects, with their models and their paths for engines."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import func, select

from contracts.errors import Conflict, InvalidField
from control.api.call import AdminCall
from control.api.resource import Resource
from control.api.schemas import Body, Deleted, ModelName, Page, PageQuery
from storage.rows import equal
from storage.tables.core import adapters

MAX_ADAPTERS = 200

AdapterName = Annotated[
    str,
    Meta(
        max_length=64,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$(?![\s\S])",
        description="letters, digits, `.`, `_` and `-`, such as support-2",
    ),
]
AdapterPath = Annotated[
    str,
    Meta(max_length=1_000, pattern=r"^/[!-~]+$(?![\s\S])", description="an absolute path such as /srv/adapters/one"),
]


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter. Clients request it as `model:name`. project_id: the only project that may use it; null if every
    project of the organization may."""

    id: UUID
    organization_id: UUID
    project_id: UUID | None
    model: str
    name: str
    path: str
    created_at: datetime


class NewAdapter(Body, frozen=True, kw_only=True):
    """path: the adapter's folder in PEFT's format, at the path where the model's engines find it. Its files must never
    change."""

    model: ModelName
    name: AdapterName
    path: AdapterPath
    project_id: UUID | None = None


class AdapterQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    project_id: UUID | None = None
    model: ModelName | None = None


ADAPTERS = Resource("adapter", Adapter, adapters, adapters)


async def list_adapters(call: AdminCall, organization_id: UUID, query: AdapterQuery) -> Page[Adapter]:
    """List an organization's adapters, newest first."""
    await call.require_organization(organization_id)
    table = adapters.c
    narrower = (equal(table.project_id, query.project_id), equal(table.model, query.model))
    return await ADAPTERS.page(call, query, table.organization_id == organization_id, *narrower)


async def create_adapter(call: AdminCall, organization_id: UUID, body: NewAdapter) -> Adapter:
    """Give an adapter to an organization or to one of its projects.

    At least one of the model's pools must accept adapters (`max_adapters`). An engine loads the adapter at its first
    request. Gateways apply the change within a second.
    """
    await call.require_organization(organization_id)
    if body.project_id is not None and await call.organization_of_project(body.project_id) != organization_id:
        raise InvalidField("Invalid value for 'project_id': it is another organization's project.", param="project_id")
    _require_adapted(call, body.model)
    await call.lock_organization(organization_id)
    table = adapters.c
    own = table.organization_id == organization_id
    if await call.value(select(func.count()).where(own)) >= MAX_ADAPTERS:
        raise Conflict(f"An organization has at most {MAX_ADAPTERS} adapters; delete one first.")
    same = (table.project_id.is_not_distinct_from(body.project_id), table.model == body.model, table.name == body.name)
    if await call.value(select(func.count()).where(own, *same)):
        raise Conflict(f"The adapter '{body.model}:{body.name}' already exists; delete it first.", param="name")
    return await ADAPTERS.create(call, organization_id=organization_id, **ADAPTERS.values_of(body))


async def get_adapter(call: AdminCall, adapter_id: UUID) -> Adapter:
    """Get an adapter."""
    return await ADAPTERS.find(call, adapter_id)


async def delete_adapter(call: AdminCall, adapter_id: UUID) -> Deleted:
    """Remove an adapter. Every gateway refuses new requests for it within a second.

    Running requests finish, and engines free its memory when they need it.
    """
    return await ADAPTERS.delete(call, await ADAPTERS.find(call, adapter_id, for_update=True))


def _require_adapted(call: AdminCall, name: str) -> None:
    """Require a known model with an engine that takes adapters. Otherwise, the adapter would be unusable."""
    model = next((model for model in call.fleet.models if model.name == name), None)
    if model is None:
        known = [model.name for model in call.fleet.models]
        raise InvalidField(
            f"Invalid value for 'model': this deployment has no model {name!r}; it has: {', '.join(known) or 'none'}.",
            param="model",
        )
    if name not in call.fleet.adapted_models:
        pools = " or ".join(f"pools.{pool}.max_adapters" for pool in model.answering_pools)
        raise InvalidField(
            f"Invalid value for 'model': the engines of {name!r} do not support adapters yet. Set {pools} above 0 "
            "(drivers embedded, sglang and vllm; no pairs), and start the engines for it, as docs/guides/adapters.md "
            "describes.",
            param="model",
        )
