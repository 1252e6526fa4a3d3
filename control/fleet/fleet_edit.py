"""Runs an edit of the fleet for the admin API: checks the version that it was made for and its result, and writes it
with its audit row unless it is a dry run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError, Conflict, InvalidField
from control.api.call import AdminCall
from control.api.principal import NO_KEY
from control.api.schemas import Query
from control.fleet.edits import Edit
from control.fleet.revision import Revision, newest, require_version, write
from control.fleet.servable import changed_models, changed_pools, check_pool, check_served, check_tokenizer
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys, OneKey

PROBE_TIMEOUT_S = 3.0
"""The edit's transaction waits this long."""
KEYS_FOLDER, KEY_VARIABLE = "engine-keys", "_API_KEY"
"""Locations of engines' keys that an edit over HTTP may name."""


class EditQuery(Query, frozen=True, kw_only=True):
    """Options of an edit."""

    dry_run: bool = False
    """Return the differences without changing anything."""
    force: bool = False
    """Accept a model without an engine, and files that cannot be read on the gateway's machine."""
    probe: bool = False
    """First check the engines of new and changed pools and models, and refuse the edit if one is not ready or serves
    another name. No key is sent; an engine that requires one counts as ready."""


class FleetEdit(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an edit. version: the fleet's new version. previous_version: the version before the edit; equal to
    `version` if nothing changed. differences: a line each.

    Gateways apply a new version within seconds; `GET /fleet` shows which ones have.
    """

    version: int
    previous_version: int
    dry_run: bool
    differences: list[str]


async def edited(call: AdminCall, query: EditQuery, action: str, edit: Edit) -> FleetEdit:
    """Make the edit. Raises its errors, InvalidField if no gateway could serve the result, and VersionMismatch."""
    expected = _expected_version(call.if_match)
    before = await in_force(call)
    require_version(before, expected)
    await _require_working(call, query, before.state, edit(before.state))
    written = await write(
        call.connection,
        edit,
        actor=call.principal.actor(call.request_id).name,
        action=action,
        expected_version=expected,
        dry_run=query.dry_run,
    )
    if written.before.state.version != before.state.version:  # of another edit, made during the checks
        await _require_working(call, query, written.before.state, written.after.state)
    call.dry_run = query.dry_run
    call.fleet_version = (written.before if query.dry_run else written.after).state.version
    if not query.dry_run:
        call.changes.append(written.change)
    return FleetEdit(
        version=written.after.state.version,
        previous_version=written.before.state.version,
        dry_run=query.dry_run,
        differences=written.differences,
    )


async def in_force(call: AdminCall) -> Revision:
    """The newest version, which the response's ETag names. Raises Conflict for a version of a newer release."""
    revision = await newest_fleet(call)
    call.fleet_version = revision.state.version
    return revision


async def newest_fleet(call: AdminCall) -> Revision:
    """Like `in_force`, for responses about something else."""
    try:
        return await newest(call.connection)
    except ConfigError as error:
        raise Conflict(f"{error.message}.") from None


def _expected_version(if_match: str | None) -> int | None:
    if if_match is None:
        return None
    number = if_match.removeprefix("W/").strip('"')
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise InvalidField(
            f"Invalid value for 'If-Match': it must be a response's ETag, such as \"7\"; got {if_match[:50]!r}.",
            param="If-Match",
        )
    return int(number)


async def _require_working(call: AdminCall, query: EditQuery, before: DesiredState, after: DesiredState) -> None:
    await _require_servable(call, before, after, force=query.force)
    if query.probe:
        await _require_engines(before, after)


async def _require_servable(call: AdminCall, before: DesiredState, after: DesiredState, *, force: bool) -> None:
    """Check now for errors that a gateway would find when it takes this version up."""
    pools = changed_pools(before, after)
    over_http = call.principal.key_id != NO_KEY
    if over_http:
        _require_engine_keys(before, pools)
    try:
        for pool in pools:
            check_pool(pool)
        if force:
            return
        if over_http:  # in a gateway, whose environment has the keys
            EngineKeys(lambda: "the-deployments", os.environ).require(pools)
        for model in after.models:
            if _fits(before, before.model(model.name)):
                _check_served(after, model)
        for model in changed_models(before, after):
            known = before.model(model.name)
            if known is None or (known.tokenizer, known.fim.typed_line) != (model.tokenizer, model.fim.typed_line):
                await asyncio.to_thread(check_tokenizer, model)
    except ConfigError as error:
        raise InvalidField(f"{error.message}.", param=error.param) from None


def _require_engine_keys(before: DesiredState, pools: Sequence[Pool]) -> None:
    """Raise InvalidField for a file or variable that is not meant for engines. Otherwise, a stolen admin key could send
    any secret of this machine to its thief."""
    files, variables = {pool.api_key_file for pool in before.pools}, {pool.api_key_env for pool in before.pools}
    for pool in pools:
        if pool.api_key_file not in {"", *files} and Path(pool.api_key_file).resolve().parent.name != KEYS_FOLDER:
            raise InvalidField(
                f"Invalid value for 'api_key_file': over the API, it must be in a folder called {KEYS_FOLDER}, or be "
                "the file of an existing pool. `slipstream fleet pools set` on the machine accepts any file.",
                param="api_key_file",
            )
        if pool.api_key_env not in {"", *variables} and not pool.api_key_env.endswith(KEY_VARIABLE):
            raise InvalidField(
                f"Invalid value for 'api_key_env': over the API the variable's name must end with {KEY_VARIABLE}, or "
                "be that of an existing pool. `slipstream fleet pools set` on the machine accepts any name.",
                param="api_key_env",
            )


async def _require_engines(before: DesiredState, after: DesiredState) -> None:
    """Raise InvalidField if an engine of a new or changed pool or model is not ready, or does not serve it."""
    from control.fleet.engine_probe import engine_faults  # few edits need it

    models = changed_models(before, after)
    concerned = {model.pool for model in models} | {pool.name for pool in changed_pools(before, after)}
    known = {replica for pool in before.pools for replica in pool.replicas}
    pools = [
        pool if models else replace(pool, replicas=tuple(each for each in pool.replicas if each not in known))
        for pool in after.pools
        if pool.name in concerned
    ]
    connections = EngineConnections(OneKey(""))
    try:
        faults = await engine_faults(connections, pools, after.models, PROBE_TIMEOUT_S, with_keys=False)
    finally:
        await connections.close()
    if faults:
        text = "; ".join(fault.rstrip(".") for fault in faults)
        raise InvalidField(f"{text}. To make the edit without this check, leave out `probe`.", param="probe")


def _fits(state: DesiredState, model: Model | None) -> bool:
    """Whether a model's longest request can be served. A new model counts as if it could, so that it is checked."""
    if model is None:
        return True
    try:
        _check_served(state, model)
    except ConfigError:
        return False
    return True


def _check_served(state: DesiredState, model: Model) -> None:
    pool = state.pool(model.pool)
    if pool is not None:
        check_served(model, pool)
