"""Removing splits of ended releases holds the fleet's lock: a worker that is stopped there lets go of it."""

from __future__ import annotations

import asyncpg
import msgspec
import pytest

from contracts.desired_state import Canary
from control.releases import store
from control.releases.rollout.config import ReleasesConfig
from control.releases.rollout.controller import Controller
from tests.control.releases.fleets import FLEET, put_fleet


async def test_a_sweep_is_limited_like_a_step(connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    model = msgspec.structs.replace(FLEET.models[0], canary=Canary("new", 0.1, release="gone"))
    await put_fleet(connection, msgspec.structs.replace(FLEET, models=(model, *FLEET.models[1:])))
    limits = []
    write_fleet = store.write_fleet

    async def seen(connection: asyncpg.Connection, *arguments: object) -> int | None:
        limits.append(await connection.fetchval("SHOW idle_in_transaction_session_timeout"))
        return await write_fleet(connection, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "write_fleet", seen)
    await Controller(ReleasesConfig()).tick(connection)
    assert limits == ["10s"]
