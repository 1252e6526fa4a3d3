"""Models that the deployment serves, and the names they have: changed while everything runs."""

from __future__ import annotations

import msgspec

from contracts.desired_state import Model, Pool
from contracts.errors import InvalidField
from control.api.call import AdminCall
from control.api.schemas import Body, ModelName
from control.fleet import edits
from control.fleet.fleet_edit import EditQuery, FleetEdit, edited, in_force


class FleetModels(msgspec.Struct, frozen=True, kw_only=True):
    """All models of a version, in their order; fields at their defaults are left out."""

    version: int
    data: list[Model]


class NewModel(Body, frozen=True, kw_only=True):
    """A model with the pool that serves it."""

    model: Model
    pool: Pool


class AliasTarget(Body, frozen=True, kw_only=True):
    """The alias' new target."""

    model: ModelName


async def list_models(call: AdminCall) -> FleetModels:
    """List the models that are to be served."""
    state = (await in_force(call)).state
    return FleetModels(version=state.version, data=list(state.models))


async def get_model(call: AdminCall, model_name: str) -> Model:
    """One model, by its name."""
    return edits.find_model((await in_force(call)).state, model_name)


async def add_model(call: AdminCall, body: NewModel, query: EditQuery) -> FleetEdit:
    """Add a model together with its pool, in one version.

    409 if there is a model or a pool of the name. With `probe` neither is written unless the engines serve the model.
    """
    return await edited(
        call, query, "model.add", lambda state: edits.add_model(state, body.model, body.pool, force=query.force)
    )


async def put_model(call: AdminCall, model_name: str, body: Model, query: EditQuery) -> FleetEdit:
    """Add a model, or replace it whole.

    `name` must be the one in the path. Running requests finish where they are; later ones use the new definition.
    """
    if body.name != model_name:
        raise InvalidField(f"Invalid value for 'name': it is {model_name!r} in the path.", param="name")
    return await edited(call, query, "model.put", lambda state: edits.put_model(state, body, force=query.force))


async def delete_model(call: AdminCall, model_name: str, query: EditQuery) -> FleetEdit:
    """Serve a model no longer; its aliases go with it."""
    return await edited(
        call, query, "model.remove", lambda state: edits.remove_model(state, model_name, force=query.force)
    )


async def put_alias(call: AdminCall, alias: str, body: AliasTarget, query: EditQuery) -> FleetEdit:
    """Let an alias mean a model.

    One that meant another moves in the same moment: no request finds it without a model.
    """
    return await edited(call, query, "alias.put", lambda state: edits.put_alias(state, alias, body.model))


async def delete_alias(call: AdminCall, alias: str, query: EditQuery) -> FleetEdit:
    """Take an alias away; requests that name it are refused from then on."""
    return await edited(call, query, "alias.remove", lambda state: edits.remove_alias(state, alias))
