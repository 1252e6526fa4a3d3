"""Steps of releases on PostgreSQL: the release, its step and the desired state, all of them or none."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec
import pytest

from contracts.desired_state import DesiredState
from contracts.errors import Conflict
from control.releases import store
from control.releases.machine import Event, State
from control.releases.release import Release
from tests.control.releases.fleets import FLEET, STAGES, put_fleet, started

BEGUN = {"policy": "{}", "thresholds": "{}"}


async def step(connection: asyncpg.Connection, release: Release, event: Event, **columns: Any) -> Release:
    async with connection.transaction():
        current = await store.locked(connection, release.id)
        assert current is not None
        if event is Event.BEGIN:
            columns = {**BEGUN, **columns}
        return await store.step(connection, current, event, reason=event.value, **columns)


async def split(connection: asyncpg.Connection) -> float | None:
    """The candidate's share in the newest desired state; None: no split."""
    model = (await store.fleet(connection)).model("m")
    assert model is not None
    return None if model.canary is None else model.canary.share


async def salt(connection: asyncpg.Connection) -> str:
    """Of the split in the newest desired state."""
    canary = (await store.fleet(connection)).models[0].canary
    assert canary is not None
    return canary.salt


async def test_no_two_releases_draw_the_same_secret(connection: asyncpg.Connection) -> None:
    salts = set()
    for _ in range(2):
        release = await step(connection, await started(connection), Event.BEGIN)
        salts.add(await salt(connection))
        await step(connection, release, Event.ROLL_BACK)
    assert len(salts) == 2


async def test_a_release_goes_through_its_stages_each_a_version_of_the_fleet(connection: asyncpg.Connection) -> None:
    release = await started(connection)
    assert (release.state, await split(connection)) == (State.WAITING, None)
    release = await step(connection, release, Event.BEGIN)
    assert await split(connection) == 0.0
    salts = {await salt(connection)}
    for share in STAGES[1:-1]:
        release = await step(connection, release, Event.ADVANCE)
        assert await split(connection) == share
        salts.add(await salt(connection))
    assert [len(each) for each in salts] == [32], "one secret, drawn when the split was made"
    release = await step(connection, release, Event.ADVANCE)
    assert release.state is State.PROMOTED
    assert release.ended_at is not None
    model = (await store.fleet(connection)).model("m")
    assert model is not None
    assert (model.pool, model.engine_model, model.canary) == ("new", "m-2", None)
    steps = await store.steps_of(connection, release.id)
    assert [row["step"] for row in steps] == [1, 2, 3, 4, 5, 6]
    assert [row["to_stage"] for row in steps] == [0, 0, 1, 2, 3, 4]
    assert [row["desired_version"] for row in steps] == [None, 2, 3, 4, 5, 6]
    actions = await connection.fetch("SELECT action FROM gateway.audit_log ORDER BY id")
    assert [row["action"] for row in actions] == ["release.begin", *["release.advance"] * 4]


@pytest.mark.parametrize("event", [Event.BEGIN, Event.ADVANCE, Event.HOLD])
async def test_a_step_that_is_cut_off_between_any_two_statements_was_not_begun(
    fresh_postgres_url: str, event: Event
) -> None:
    """The connection is torn before the first statement, the second, and so on, until a step gets through."""
    connection = await asyncpg.connect(fresh_postgres_url)
    release = await started(connection)
    if event is not Event.BEGIN:
        release = await step(connection, release, Event.BEGIN)
    before, cut = await _all(connection), 0
    while True:
        torn = await asyncpg.connect(fresh_postgres_url, connection_class=Torn)
        torn.statements_left = cut
        try:
            await step(torn, release, event)
        except (ConnectionError, asyncpg.PostgresError, asyncpg.InterfaceError):
            assert await _all(connection) == before
            cut += 1
            continue
        break
    await torn.close()
    assert cut >= 2, "nothing was cut"
    after = await _all(connection)
    assert after != before
    assert len(after["steps"]) == len(before["steps"]) + 1
    assert len(after["states"]) == len(before["states"]) + (event is not Event.HOLD)
    await connection.close()


class Torn(asyncpg.Connection):  # type: ignore[misc]
    """Loses its socket before a statement."""

    statements_left = 1_000

    async def _execute(self, *arguments: Any, **named: Any) -> Any:
        if self.statements_left == 0:
            self.terminate()
            raise ConnectionError("torn")
        self.statements_left -= 1
        return await super()._execute(*arguments, **named)

    async def execute(self, query: str, *arguments: Any, **named: Any) -> str:
        if not arguments and query.startswith("COMMIT") and self.statements_left == 0:
            self.terminate()
            raise ConnectionError("torn")
        done: str = await super().execute(query, *arguments, **named)
        return done


async def _all(connection: asyncpg.Connection) -> dict[str, list[asyncpg.Record]]:
    return {
        "releases": await connection.fetch("SELECT * FROM gateway.releases"),
        "steps": await connection.fetch("SELECT * FROM gateway.release_steps ORDER BY step"),
        "states": await connection.fetch("SELECT * FROM gateway.desired_states ORDER BY version"),
        "audit": await connection.fetch("SELECT * FROM gateway.audit_log ORDER BY id"),
    }


async def test_two_hands_do_not_move_it_twice(fresh_postgres_url: str) -> None:
    one, other = [await asyncpg.connect(fresh_postgres_url) for _ in range(2)]
    release = await step(one, await started(one), Event.BEGIN)
    async with one.transaction():
        assert await store.locked(one, release.id) is not None
        async with other.transaction():
            assert await store.locked(other, release.id, skip=True) is None
    steps = [step(each, release, Event.ROLL_BACK) for each in (one, other)]
    [refused] = [done for done in await asyncio.gather(*steps, return_exceptions=True) if isinstance(done, Exception)]
    assert isinstance(refused, Conflict), "whichever of the two was second"
    assert [row["event"] for row in await store.steps_of(one, release.id)] == ["start", "begin", "roll_back"]
    await one.close()
    await other.close()


async def test_a_model_has_one_release_at_a_time(connection: asyncpg.Connection) -> None:
    release = await started(connection)
    with pytest.raises(asyncpg.UniqueViolationError):
        await started(connection)
    await step(connection, release, Event.ROLL_BACK)
    await started(connection)


async def test_a_release_does_not_go_on_in_a_fleet_that_another_hand_has_changed(
    connection: asyncpg.Connection,
) -> None:
    release = await step(connection, await started(connection), Event.BEGIN)
    await put_fleet(connection)
    with pytest.raises(Conflict, match="split was changed outside the release"):
        await step(connection, release, Event.ADVANCE)
    release = await step(connection, release, Event.LOST)
    assert release.state is State.ROLLED_BACK
    assert await split(connection) is None


async def test_rolling_back_needs_no_fleet_as_it_was(connection: asyncpg.Connection) -> None:
    release = await step(connection, await started(connection), Event.BEGIN)
    await put_fleet(connection, msgspec.structs.replace(FLEET, models=FLEET.models[1:]))
    release = await step(connection, release, Event.ROLL_BACK)
    assert release.state is State.ROLLED_BACK
    steps = await store.steps_of(connection, release.id, behind=2)
    assert [(row["event"], row["desired_version"]) for row in steps] == [("roll_back", None)]


async def test_a_split_whose_release_is_gone_is_swept_away(connection: asyncpg.Connection) -> None:
    release = await step(connection, await started(connection), Event.BEGIN)
    assert await store.sweep(connection, await store.fleet(connection)) is None
    await connection.execute("DELETE FROM gateway.releases WHERE id = $1", release.id)
    async with connection.transaction():
        assert await store.sweep(connection, await store.fleet(connection)) == 3
    assert await split(connection) is None
    assert await store.sweep(connection, DesiredState(version=9, models=FLEET.models)) is None
