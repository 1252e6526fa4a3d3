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
    """All models of a version, in order. Fields with their default values are omitted."""

    version: int
    data: list[Model]


class NewModel(Body, frozen=True, kw_only=True):
    """A model and the pool that serves it."""

    model: Model
    pool: Pool


class EngineQuery(Query, frozen=True, kw_only=True):
    """An engine that need not belong to a pool yet. url: the URL at which gateways reach it. driver: by default,
    `openai`."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    driver: Name | None = None


class ReportedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that an engine serves. context_tokens: null if the engine does not report it."""

    name: str
    context_tokens: int | None


class ReportedModels(msgspec.Struct, frozen=True, kw_only=True):
    """All models that one engine serves."""

    data: list[ReportedModel]


class AliasTarget(Body, frozen=True, kw_only=True):
    """The alias' new target."""

    model: ModelName


async def list_models(call: AdminCall) -> FleetModels:
    """List the models in desired state."""
    state = (await in_force(call)).state
    return FleetModels(version=state.version, data=list(state.models))


async def get_model(call: AdminCall, model_name: str) -> Model:
    """Get a model by name."""
    return edits.find_model((await in_force(call)).state, model_name)


async def add_model(call: AdminCall, body: NewModel, query: EditQuery) -> FleetEdit:
    """Add a model and its pool in one version.

    The response is 409 if a model or pool of that name exists. With `probe`, neither is added unless the engines serve
    the model.
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
    """Add or replace a model.

    `name` must match the path. Running requests finish on their engines; later requests use the new definition.
    """
    if body.name != model_name:
        raise InvalidField(f"Invalid value for 'name': it must be {model_name!r}, as in the path.", param="name")
    return await edited(call, query, "model.put", lambda state: edits.put_model(state, body, force=query.force))


async def delete_model(call: AdminCall, model_name: str, query: EditQuery) -> FleetEdit:
    """Stop serving a model, and remove its aliases."""
    return await edited(
        call, query, "model.remove", lambda state: edits.remove_model(state, model_name, force=query.force)
    )


async def put_alias(call: AdminCall, alias: str, body: AliasTarget, query: EditQuery) -> FleetEdit:
    """Point an alias to a model.

    An existing alias switches at once, so no request finds it without a model.
    """
    return await edited(call, query, "alias.put", lambda state: edits.put_alias(state, alias, body.model))


async def delete_alias(call: AdminCall, alias: str, query: EditQuery) -> FleetEdit:
    """Remove an alias. Later requests for it are refused."""
    return await edited(call, query, "alias.remove", lambda state: edits.remove_alias(state, alias))
