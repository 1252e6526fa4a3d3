"""Versions of the fleet: the one in force, their authors and differences, and rollback to an earlier one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from sqlalchemy import select

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError, Conflict, NotFound
from control.api.call import AdminCall
from control.api.pages import page_of
from control.api.schemas import Body, Page, PageQuery, Query
from control.fleet import edits
from control.fleet.difference import differences
from control.fleet.fleet_edit import EditQuery, FleetEdit, edited, in_force
from control.fleet.reports import GatewayReport, gateway_reports
from control.fleet.revision import Revision, at
from control.router_view.live_fleet import LiveFleet
from storage.rows import columns_of
from storage.tables.core import desired_states

VersionNumber = Annotated[int, Meta(ge=1, le=2**53)]


class FleetVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version. action: the operation that created it, or `seed` for the settings. actor: its author. Both are null
    in versions of earlier releases, which only settings created."""

    version: int
    created_at: datetime
    action: str | None
    actor: str | None


class FleetStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The current version, and its state at each gateway that ran within the last day."""

    version: int
    gateways: list[GatewayReport]


class FleetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A whole version. differences: from the previous version or the requested one, a line each."""

    version: int
    action: str | None
    actor: str | None
    models: list[Model]
    pools: list[Pool]
    differences: list[str]


class SinceQuery(Query, frozen=True, kw_only=True):
    """The version to compare with."""

    since: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    """A version; by default, the previous one. Version 0 is the fleet before the first version."""


class Rollback(Body, frozen=True, kw_only=True):
    """The version to return to."""

    version: VersionNumber


async def get_fleet(call: AdminCall) -> FleetStanding:
    """Get the current version, and for each gateway whether it applies it or why it refuses it."""
    version = (await in_force(call)).state.version
    return FleetStanding(version=version, gateways=await gateway_reports(call.connection))


async def get_live_fleet(call: AdminCall) -> LiveFleet:
    """Get the router's view: each replica's health, breaker, load and limits, and each pool's queue.

    The response is 503 `router_unavailable` while the router does not respond.
    """
    return await call.router.live_fleet()


async def list_fleet_versions(call: AdminCall, query: PageQuery) -> Page[FleetVersion]:
    """List the versions and their authors."""
    statement = select(*columns_of(FleetVersion, desired_states))
    return await page_of(call.connection, FleetVersion, statement, query, desired_states.c.version)


async def get_fleet_version(call: AdminCall, fleet_version: str, query: SinceQuery) -> FleetDocument:
    """Get a version and its differences from another one."""
    revision = await find_version(call, fleet_version)
    state = revision.state
    since = state.version - 1 if query.since is None else query.since
    if query.since:
        before = (await find_version(call, str(since))).state
    else:
        found = await _at(call, since)
        before = DesiredState(version=0) if found is None else found.state
    return FleetDocument(
        version=state.version,
        action=revision.action or None,
        actor=revision.actor or None,
        models=list(state.models),
        pools=list(state.pools),
        differences=differences(before, state),
    )


async def roll_back_fleet(call: AdminCall, body: Rollback, query: EditQuery) -> FleetEdit:
    """Restore an earlier version as a new version.

    Splits of releases that have ended since then are not restored. A model with a running release must not change.
    """
    earlier = (await find_version(call, str(body.version))).state
    return await edited(call, query, "rollback", lambda state: edits.restore(state, earlier, force=query.force))


async def find_version(call: AdminCall, number: str) -> Revision:
    """A version by its number. Raises NotFound, and Conflict for a version of a newer release."""
    version = int(number) if number.isascii() and number.isdigit() and len(number) < 19 else 0
    revision = await _at(call, version)
    if revision is None:
        raise NotFound(f"There is no version {number[:20]!r} of the fleet.")
    return revision


async def _at(call: AdminCall, version: int) -> Revision | None:
    try:
        return await at(call.connection, version)
    except ConfigError as error:
        raise Conflict(f"{error.message}.") from None
