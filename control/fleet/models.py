"""Changes the models that the deployment serves, and their names, while it runs."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError, InvalidField, SlipstreamError
from control.api.call import AdminCall
from control.api.schemas import Body, ModelName, Name, Query
from control.fleet import edits
from control.fleet.fleet_edit import PROBE_TIMEOUT_S, EditQuery, FleetEdit, edited, in_force
from engines.drivers.openai import OpenAIDriver
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey


class FleetModels(msgspec.Struct, frozen=True, kw_only=True):
    """All models of a version, in their order; fields at their defaults are left out."""

    version: int
    data: list[Model]


class NewModel(Body, frozen=True, kw_only=True):
    """A model with the pool that serves it."""

    model: Model
    pool: Pool


class EngineQuery(Query, frozen=True, kw_only=True):
    """An engine that may be in no pool yet. url: as gateways reach it. driver: by default, `openai`."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    driver: Name | None = None


class ReportedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that an engine serves. context_tokens: null where the engine does not report it."""

    name: str
    context_tokens: int | None


class ReportedModels(msgspec.Struct, frozen=True, kw_only=True):
    """All models that one engine serves."""

    data: list[ReportedModel]


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


async def list_engine_models(_: None, query: EngineQuery) -> ReportedModels:
    """List the models that an engine reports, with their context.

    It is asked without a key. 400 with the reason if it cannot be reached, is not ready or wants a key.
    """
    from control.fleet.engine_probe import EngineKeyRefused, reported_models  # few requests need it

    connections = EngineConnections(OneKey(""))
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):  # for all of its requests together
            driver = query.driver or OpenAIDriver.name
            found = await reported_models(connections, driver, query.url, PROBE_TIMEOUT_S)
    except ConfigError as error:
        field = "driver" if (error.param or "").endswith("driver") else "url"
        raise InvalidField(f"Invalid value for '{field}': {error.message}.", param=field) from None
    except TimeoutError:
        message = f"The engine at {query.url[:200]} did not answer within {PROBE_TIMEOUT_S:g} s."
        raise InvalidField(message, param="url") from None
    except SlipstreamError as error:
        message = f"The engine at {query.url[:200]}: {error.message.rstrip('.')}."
        if isinstance(error, EngineKeyRefused):
            message += (
                " Enter the model's name and context yourself: `slipstream engine` logs both once the model is loaded "
                '("serving NAME with a context of N tokens"), and other engines list them at /v1/models.'
            )
        raise InvalidField(message, param="url") from None
    finally:
        await connections.close()
    return ReportedModels(data=[ReportedModel(name=name, context_tokens=context) for name, context in found.items()])


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
