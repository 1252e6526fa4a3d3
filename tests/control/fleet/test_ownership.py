"""Settings seed the fleet, edits outlive restarts, and gateways with different settings do not take turns."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import pytest
from msgspec.structs import replace

from contracts.desired_state import Canary, DesiredState, Model, Pool, Replica
from contracts.errors import VersionMismatch
from contracts.generation import Tier
from control.fleet import edits, revision
from control.fleet.ownership import Claim, claim, foreseen, warning_of
from control.fleet.revision import Revision, digest_of, write
from control.fleet.seeding import seed
from gateway.desired import document
from gateway.desired.store import DesiredStateStore
from storage.audit_log import Actor, record

Start = Callable[..., Awaitable[int]]
ADA = Actor.command("ada", "slipstream fleet models set")
POOLS = (Pool("blue", "sglang", (Replica("b0", "http://127.0.0.1:1"), Replica("b1", "http://127.0.0.1:2"))),)
FIRST = DesiredState(0, (Model("large", Tier.CHAT, "blue", 4_096),), POOLS)
SECOND = replace(FIRST, models=(replace(FIRST.models[0], aliases=("chat",)),))


def drained(state: DesiredState) -> DesiredState:
    return edits.set_weight(state, "blue", "b0", 0)


@pytest.fixture
def start(fresh_postgres_url: str, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture) -> Start:
    """One start with these settings, which warns of what was foreseen; the version that is then in force."""

    async def foretold(settings: DesiredState, instance: str) -> list[str]:
        """The warnings, by `foreseen`, which writes nothing."""
        warning = warning_of(await foreseen(connection, settings, instance))
        return [] if warning is None else [warning]

    async def start(settings: DesiredState, instance: str = "g0") -> int:
        told = await foretold(settings, instance)
        before = len(caplog.records)
        store = DesiredStateStore(fresh_postgres_url)
        await store.start()
        try:
            version = await seed(store, instance, settings.models, settings.pools)
            assert store.current.version == version
        finally:
            await store.stop()
        assert [each.getMessage() for each in caplog.records[before:] if each.levelno >= logging.WARNING] == told
        return version

    return start


async def edited(connection: asyncpg.Connection[Any], edit: edits.Edit, **options: Any) -> int:
    async with connection.transaction():
        written = await write(connection, edit, actor=ADA.name, action="edit", **options)
        await record(connection, ADA, written.change)
    return written.after.state.version


async def test_edits_outlive_restarts_with_the_same_settings(
    start: Start, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert await start(FIRST) == 1
    assert await edited(connection, drained) == 2
    assert [await start(FIRST), await start(FIRST, "g1"), await start(FIRST)] == [2, 2, 2]
    assert [await connection.fetchval("SELECT count(*) FROM gateway.desired_states")] == [2]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_changed_settings_replace_edits_and_say_what_was_lost(
    start: Start, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await start(FIRST)
    await edited(connection, drained)
    assert await start(SECOND) == 3
    lost = "replica b0 of blue: weight 1.0 -> 0.0"
    assert f"{lost}. Repeat the edits that you still want; `slipstream fleet rollback 2` brings" in caplog.text
    after = await connection.fetchval("SELECT after::text FROM gateway.audit_log ORDER BY id DESC LIMIT 1")
    assert lost in after
    newest = await revision.newest(connection)
    assert (newest.state.models, newest.action, newest.actor) == (SECOND.models, "seed", "slipstream gateway")
    assert await start(FIRST) == 4  # back again is a change too, and nothing was edited since
    assert caplog.text.count("it replaces the edits") == 1


async def test_an_edit_that_the_changed_settings_say_too_is_not_lost(
    start: Start, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await start(FIRST)
    await edited(connection, drained)
    await edited(connection, lambda state: edits.put_alias(state, "quick", "large"))
    noted = replace(SECOND, pools=drained(SECOND).pools)
    assert await start(noted) == 4
    assert "it replaces the edits that were made since the previous settings: model large: aliases" in caplog.text
    assert "weight" not in caplog.text, "which is in the settings by now"


async def test_settings_that_say_all_that_was_edited_lose_nothing(
    start: Start, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await start(FIRST)
    await edited(connection, drained)
    assert await start(drained(SECOND)) == 3
    assert "replaces" not in caplog.text


@pytest.mark.parametrize("edit", [drained, lambda state: edits.set_weight(state, "blue", "b0", 2.0)])
async def test_what_settings_take_away_whole_takes_its_edits_with_it(
    start: Start, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture, edit: edits.Edit
) -> None:
    await start(FIRST)
    await edited(connection, edit)
    await start(replace(FIRST, pools=(replace(POOLS[0], replicas=POOLS[0].replicas[1:]),)))
    assert "since the previous settings: replica b0 of blue: weight 1.0 -> " in caplog.text


async def test_gateways_with_different_settings_do_not_take_turns(
    start: Start, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert [await start(FIRST, "g0"), await start(SECOND, "g1")] == [1, 2]
    assert [await start(FIRST, "g0"), await start(SECOND, "g1"), await start(FIRST, "g0")] == [2, 2, 2]
    assert await start(FIRST, "g2") == 2  # a new instance with settings that others have replaced
    assert "comes from other settings" in caplog.text
    assert await start(SECOND, "g0") == 2
    assert await start(FIRST, "g1") == 3  # here they are new


async def test_a_row_of_an_earlier_release_descends_from_settings_that_said_the_same(
    start: Start, connection: asyncpg.Connection[Any]
) -> None:
    await connection.execute(
        "INSERT INTO gateway.desired_states (version, document) VALUES (7, $1::jsonb)",
        document.encode(FIRST.models, FIRST.pools),
    )
    assert await start(FIRST) == 7
    assert await edited(connection, drained) == 8  # and so does what is made of it
    assert await start(FIRST) == 8
    assert await start(SECOND) == 9


async def test_an_edited_row_of_an_earlier_release_says_what_was_edited(
    start: Start, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await connection.execute(
        "INSERT INTO gateway.desired_states (version, document) VALUES (7, $1::jsonb)",
        document.encode(FIRST.models, FIRST.pools),
    )
    await edited(connection, drained)
    await start(SECOND)
    assert "replica b0 of blue: weight 1.0 -> 0.0" in caplog.text


def divided(state: DesiredState, canary: Canary | None) -> DesiredState:
    models = (msgspec.structs.replace(each, canary=canary) if each.name == "large" else each for each in state.models)
    return msgspec.structs.replace(state, models=tuple(models))


async def test_settings_that_would_break_a_release_off_wait_for_its_end(
    start: Start, connection: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await start(FIRST)
    split = Canary("blue", 0.05, release="r1")
    await edited(connection, lambda state: divided(state, split))
    assert [await start(FIRST), await start(SECOND)] == [2, 2]
    assert "a release of large runs. Version 2 stays" in caplog.text
    await edited(connection, lambda state: divided(state, None))
    assert await start(SECOND) == 4


def test_the_rule_for_a_fleet_that_never_was() -> None:
    nothing = Revision(DesiredState(version=0))
    assert claim(nothing, FIRST, digest_of(FIRST), known=True) is Claim.REPLACE


async def test_a_write_is_refused_when_somebody_was_faster(connection: asyncpg.Connection[Any], start: Start) -> None:
    await start(FIRST)
    assert await edited(connection, drained, expected_version=1) == 2
    with pytest.raises(VersionMismatch, match=r"version 2, not 1: ada \(slipstream fleet models set\) changed"):
        await edited(connection, drained, expected_version=1)
    assert await edited(connection, drained) == 2  # changes nothing, so it is no version
    assert await edited(connection, lambda state: edits.remove_replica(state, "blue", "b0"), dry_run=True) == 3
    assert (await revision.newest(connection)).state.version == 2


async def test_a_transaction_that_fails_leaves_no_version(connection: asyncpg.Connection[Any], start: Start) -> None:
    await start(FIRST)
    transaction = connection.transaction()
    await transaction.start()
    assert (await write(connection, drained, actor=ADA.name, action="edit")).after.state.version == 2
    await transaction.rollback()
    assert (await revision.newest(connection)).state.version == 1
