"""Writes desired states as a gateway's start does, and as an editor does."""

from __future__ import annotations

from typing import Any

import asyncpg

from contracts.desired_state import DesiredState, Model, Pool
from control.fleet import seeding
from control.fleet.revision import write
from control.fleet.seeding import ACTOR
from gateway.desired.store import DesiredStateStore
from storage.audit_log import record


async def seed(store: DesiredStateStore, models: tuple[Model, ...], pools: tuple[Pool, ...]) -> int:
    """What the start of a gateway with these settings does; returns the version in force."""
    return await seeding.seed(store, "gateway", models, pools)


async def put(store: DesiredStateStore, state: DesiredState) -> int:
    """Make a state the newest version, unless it already is; returns the version's number."""
    state.check()

    async def work(connection: asyncpg.Connection[Any]) -> DesiredState:
        written = await write(connection, lambda _state: state, actor=ACTOR.name, action="put")
        if written.after is not written.before:
            await record(connection, ACTOR, written.change)
        return written.after.state

    adopted = await store.in_transaction(work)
    store.adopt(adopted)
    return adopted.version
