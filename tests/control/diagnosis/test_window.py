"""PostgreSQL adds up what a plain count of the same rows does, and the rules then say the same."""

from __future__ import annotations

import random
from datetime import timedelta

import asyncpg
import msgspec
import pytest

from contracts.dated_request_id import first_at
from contracts.generation import Tier
from control.diagnosis import window as reading
from control.diagnosis.findings.evidence import PARTS, EnginePage, Slice, Window
from control.diagnosis.findings.finding import Cause
from control.diagnosis.window import PARTS_OF, SHARES, drawn, read_window
from control.slo.request_rollup import redo_hours
from storage.worker_connection import connect
from tests.control.diagnosis.findings.plain_evidence import Row, window_of
from tests.control.diagnosis.findings.traffic import BEGAN, CHANGES, WINDOW, rows
from tests.control.diagnosis.stored_traffic import forget, organization, store

MIXED = (
    Cause.LIMITS,
    Cause.ENGINE_FAILURES,
    Cause.RETRACTIONS,
    Cause.QUEUE_OR_PREFILL,
    Cause.LONG_PROMPTS,
    Cause.COLD_CACHE,
)


def mixed(seed: int) -> list[Row]:
    """Two windows; in the second all sorts of things go wrong with some requests each."""
    source = random.Random(seed)
    second = [
        CHANGES[source.choice(MIXED)](source, row) if source.random() < 0.5 else row
        for row in rows(source, BEGAN + WINDOW)
    ]
    for at, row in enumerate(second):
        if source.random() < 0.1:
            blamed = source.choice((True, False, None))
            second[at] = msgspec.structs.replace(
                row, status=503, error_code="overloaded", rule=None, over_share=blamed, ttft_ms=None
            )
        elif source.random() < 0.1:
            code = source.choice(("journal_unavailable", "client_gone", "superseded"))
            second[at] = msgspec.structs.replace(row, status=200, error_code=code, attempts=2)
        if source.random() < 0.2:
            second[at] = _offline(second[at])
    # the ids' clock has milliseconds
    return [
        msgspec.structs.replace(row, at=row.at.replace(microsecond=row.at.microsecond // 1000 * 1000))
        for row in [*rows(source, BEGAN), *second]
    ]


def _offline(row: Row) -> Row:
    phases = {**row.phases_ms, "queue": 8_000.0}
    return msgspec.structs.replace(row, service_class="offline", phases_ms=phases, ttft_ms=(row.ttft_ms or 0) + 8_000)


def labelled(kept: list[Row]) -> list[Row]:
    return [
        msgspec.structs.replace(row, organization=f"{row.organization} ({organization(row.organization)})")
        for row in kept
    ]


async def test_every_number_is_the_plain_count(connection: asyncpg.Connection) -> None:
    for seed in range(3):
        kept = mixed(seed)
        await forget(connection)
        await store(connection, kept)
        for began in (BEGAN, BEGAN + WINDOW):
            same(await read_window(connection, began, began + WINDOW), window_of(labelled(kept), began, began + WINDOW))


async def test_names_that_clients_make_up_are_no_models(connection: asyncpg.Connection) -> None:
    await store(connection, mixed(2))
    await connection.execute(
        "UPDATE gateway.request_traces"
        " SET model = request_id, tier = NULL, status = 404, error_code = 'model_not_found'"
    )
    found = await read_window(connection, BEGAN, BEGAN + WINDOW)
    assert found.requests > 0
    assert found.targets == ()


async def test_an_organization_and_a_tier_are_read_alone(connection: asyncpg.Connection) -> None:
    kept = mixed(9)
    await store(connection, kept)
    theirs = [row for row in labelled(kept) if row.organization.startswith("bolt")]
    span = (BEGAN, BEGAN + 2 * WINDOW)
    same(await read_window(connection, *span, organization("bolt")), window_of(theirs, *span))
    nothing = await read_window(connection, *span, organization("nobody"))
    assert (nothing.requests, nothing.tiers, nothing.dispersion) == (0, (), None)


async def test_whose_requests_limits_refused_is_told_with_the_key(connection: asyncpg.Connection) -> None:
    source = random.Random(5)
    await store(connection, [CHANGES[Cause.LIMITS](source, row) for row in rows(source, BEGAN)])
    whose, project, key, gone = organization("bolt"), *(organization(name) for name in ("project", "key", "gone"))
    await connection.execute(
        "INSERT INTO gateway.projects (id, organization_id, name) VALUES ($1, $2, 'p')", project, whose
    )
    await connection.execute(
        "INSERT INTO gateway.api_keys (id, name, hash, display, project_id) VALUES ($1, 'ci', $2, 'sk', $3)",
        key, bytes(32), project,
    )  # fmt: skip
    theirs = "UPDATE gateway.request_traces SET key_id = $1 WHERE organization_id = $2 AND status = 429"
    for id_, of in ((key, whose), (gone, organization("acme"))):
        await connection.execute(theirs, id_, of)
    found = (await read_window(connection, BEGAN, BEGAN + WINDOW)).refused
    keys = {each.organization.split()[0]: each.key for each in found}
    assert (keys["bolt"], keys["acme"]) == (f"ci ({key})", str(gone))
    assert [each.count for each in found] == sorted((each.count for each in found), reverse=True)
    assert sum(each.count for each in found) == await connection.fetchval(
        "SELECT count(*) FROM gateway.request_traces WHERE status = 429"
    )


SAMPLE = """
INSERT INTO gateway.engine_counts
VALUES ($1, $2, 'pool', 'http://engine', 0, 0, 0, $3, $4, $5, $6, $7)
"""


async def test_what_engines_pages_grew_by_is_read(connection: asyncpg.Connection) -> None:
    """Between samples inside the window; a restart, and a sample of before the columns were there, are begun from."""
    none = (None,) * 4
    samples: dict[str, list[tuple[float, bool, tuple[float | None, ...]]]] = {
        "one": [(-60, False, (1.0, 1.0, 1, 1)), (5, True, (9.0, 9.0, 9, 9)), (20, True, (11.0, 9.5, 12, 9)),
                (30, False, (4.0, 0.5, 1, 0)), (40, True, (4.5, 0.75, 3, 2)), (70, True, (99.0, 9.0, 99, 9))],
        "two": [(5, False, none), (10, True, (7.0, 7.0, 7, 7)), (50, True, (8.0, 7.0, 9, 7))],
        "alone": [(5, True, (7.0, 7.0, 7, 7))],
        "untold": [(5, False, none), (10, True, none)],
    }  # fmt: skip
    for replica_id, taken in samples.items():
        for at_s, on, stages in taken:
            await connection.execute(SAMPLE, replica_id, BEGAN + timedelta(seconds=at_s), on, *stages)
    found = await read_window(connection, BEGAN, BEGAN + WINDOW)
    assert found.pages == (
        EnginePage(pool="pool", replica_id="one", queue_s=2.5, prefill_s=0.75, requests=5, retractions=2),
        EnginePage(pool="pool", replica_id="two", queue_s=1.0, prefill_s=0.0, requests=2, retractions=0),
    )
    assert (await read_window(connection, BEGAN, BEGAN + WINDOW, organization("acme"))).pages == ()


async def test_of_very_many_requests_a_share_is_drawn(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = mixed(4)
    await store(connection, kept)
    whole = await read_window(connection, BEGAN, BEGAN + WINDOW)
    monkeypatch.setattr(reading, "MAX", 100)
    drawn = await read_window(connection, BEGAN, BEGAN + WINDOW)
    assert drawn.requests == whole.requests
    assert 40 < drawn.tiers[0].requests < 180 < whole.tiers[0].requests


async def test_hours_that_were_added_up_say_what_their_requests_do(
    connection: asyncpg.Connection, fresh_postgres_url: str
) -> None:
    """However the window is cut, for one organization and tier as for all."""
    kept = [
        msgspec.structs.replace(row, at=BEGAN + 150 * (row.at - BEGAN)) for row in mixed(5)
    ]  # two minutes become five hours
    await store(connection, kept)
    hour = timedelta(hours=1)
    windows = [
        (BEGAN + timedelta(seconds=first), BEGAN + timedelta(seconds=last))
        for first, last in ((0, 18_000), (1_234, 17_000), (3_600, 7_200), (3_599, 7_201), (100, 200), (3_000, 4_000))
    ]
    asked = [
        (*window, whose, tier)
        for window in windows
        for whose in (None, organization("acme"))
        for tier in (None, Tier.CHAT)
    ]
    plain = [await read_window(connection, *each) for each in asked]
    with connect(fresh_postgres_url) as worker:
        for _ in range(2):
            redo_hours(worker, [BEGAN + number * hour for number in range(5)])
    await connection.execute("INSERT INTO gateway.slo_roll_up_runs VALUES ($1, 1, 1)", BEGAN + 2.5 * hour)
    for last_run in (2.5, 6):  # within the window, and behind it
        await connection.execute("UPDATE gateway.slo_roll_up_runs SET started_at = $1", BEGAN + last_run * hour)
        for each, before in zip(asked, plain, strict=True):
            same(await read_window(connection, *each), before)
    await connection.execute("UPDATE gateway.request_hours SET requests = requests + 1000")
    extra = [
        (await read_window(connection, *each)).requests - before.requests
        for each, before in zip(asked, plain, strict=True)
    ]
    assert set(extra) == {5_000, 3_000, 1_000, 0}, "whole hours come from what was added up, the others do not"


async def test_a_share_that_has_an_index_is_the_share_without_it(connection: asyncpg.Connection) -> None:
    await store(connection, mixed(7))
    which = (first_at(BEGAN.timestamp()), first_at((BEGAN + 2 * WINDOW).timestamp()), None, None)
    begun = int(BEGAN.timestamp() * 1000)
    for below in (*SHARES, "0401", "g"):
        statement = drawn(PARTS_OF, below)
        assert (f"< '{below}'" in statement) is (below in SHARES)
        rows_of = await connection.fetch(statement, *which, below, begun, PARTS, 120_000)
        plain = await connection.fetch(PARTS_OF, *which, below, begun, PARTS, 120_000)
        assert rows_of == plain


def same(read: Window, counted: Window) -> None:
    """Equal, floats to a rounding."""
    assert close(msgspec.to_builtins(read), msgspec.to_builtins(sorted_like(counted))), (read, counted)


def sorted_like(window: Window) -> Window:
    """Slices in the order of their labels, as PostgreSQL gives them."""

    def key(one: Slice) -> tuple[str, ...]:
        return tuple(str(each) for each in (one.tier, one.length, one.pool, one.replica_id, one.organization))

    fields = {name: tuple(sorted(getattr(window, name), key=key)) for name in ("tiers", "classes", "replicas")}
    by_id = sorted(window.tenants, key=lambda each: str(each.organization).rpartition("(")[2])
    parts = sorted(window.parts, key=lambda each: (each.organization.rpartition("(")[2], each.number))
    return msgspec.structs.replace(window, **fields, tenants=tuple(by_id), parts=tuple(parts))


def close(one: object, other: object) -> bool:
    """Structures of the same shape, with nearly the same numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(close, one, other))
    return one == (pytest.approx(other) if isinstance(other, float) else other)
