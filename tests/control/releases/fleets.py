"""A fleet with a model, its pool, a candidate's and a control arm's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from control.fleet.revision import write
from control.releases import store
from control.releases.machine import State
from control.releases.release import Release

STAGES = (0.0, 0.01, 0.05, 0.25, 1.0)
MODEL = Model("m", Tier.CHAT, "old", 4_096, aliases=("alias",))
FLEET = DesiredState(
    1,
    (MODEL, Model("other", Tier.CHAT, "old", 4_096)),
    tuple(
        Pool(name, "sglang", (Replica(f"{name}-0", f"http://{name}"),), max_adapters=4)
        for name in ("old", "new", "fresh")
    ),
)
VALUES: dict[str, Any] = {
    "model": "m",
    "candidate_pool": "new",
    "engine_model": "m-2",
    "baseline_pool": "old",
    "control_pool": "",
    "stages": STAGES,
    "shadow_share": 0.1,
    "shadow_least": 0,
    "slices": (),
    "slice_rule": "{}",
    "margins": "{}",
}


def release(**changed: Any) -> Release:
    now = datetime.now(UTC)
    values = {
        "id": UUID(int=7), "created_at": now, "policy": None, "thresholds": None, "state": State.WAITING, "stage": 0,
        "stage_began_at": now, "ended_at": None, "step": 1, "reason": "", "told": "", "watermark": None,
        "organization_share": None, "more_units": 0, "comparison_id": None, "desired_version": None,
    }  # fmt: skip
    return Release(**{**VALUES, **values, **changed})


async def put_fleet(connection: asyncpg.Connection, state: DesiredState = FLEET) -> int:
    async with connection.transaction():
        written = await write(connection, lambda _state: state, actor="another hand", action="put")
    return written.after.state.version


async def started(connection: asyncpg.Connection, **values: Any) -> Release:
    await put_fleet(connection)
    async with connection.transaction():
        return await store.create(connection, "ada", **{**VALUES, **values})
