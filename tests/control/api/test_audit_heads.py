"""Heads of the audit log outside the database: every line stays, and a rewritten log is found by them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from celery import Celery
from prometheus_client import CollectorRegistry

from contracts.errors import ConfigError
from control.audit import tasks as audit_tasks
from control.audit.chain import OWNED, Head, verify
from control.audit.heads import FILE, NotedHead, current_head, note, noted
from infra.local.config import LocalConfig
from slipstream.settings import Settings
from slipstream.worker import create_app
from slipstream.worker_config import Queue
from storage.audit_log import Actor, Change, record
from tests.control.api.tampering import note_now, rewrite, tamper
from tests.databases import as_owner
from tests.waiting import GUARD_S


async def write(connection: asyncpg.Connection[Any], count: int) -> None:
    for number in range(count):
        change = Change(action="project.update", subject_id=str(number), organization_id=None)
        await record(connection, Actor.system("test"), change)


def head(number: int) -> NotedHead:
    now = datetime.now(UTC)
    return NotedHead(
        id=number, hash=hashlib.sha256(bytes([number])).hexdigest(), at=now, rows=number, noted_at=now
    )  # fmt: skip


async def test_the_current_head_is_the_newest_row(connection: asyncpg.Connection[Any]) -> None:
    assert await current_head(connection) is None
    await write(connection, 3)
    found, verdict = await current_head(connection), await verify(connection)
    assert found is not None
    assert verdict.head == Head(found.id, found.hash)
    assert (found.id, found.rows) == (3, 3)
    assert found.at == await connection.fetchval("SELECT at FROM gateway.audit_log WHERE id = 3")


def test_the_file_only_grows_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder, written, before = tmp_path / "a" / "b", [head(number) for number in range(1, 6)], b""
    assert noted(folder) == []
    for each in written:
        note(folder, each)
        after = (folder / FILE).read_bytes()
        assert after.startswith(before)
        assert len(after) > len(before)
        before = after
    assert noted(folder) == written
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", [b'{"id":1', b"\xff\xfe", b"{}", b""])
def test_a_line_that_is_no_head_is_named_and_spoils_no_other(tmp_path: Path, cut: bytes) -> None:
    note(tmp_path, head(1))
    with (tmp_path / FILE).open("ab") as file:
        file.write(cut or b"\n")
    note(tmp_path, head(2))
    lines = (tmp_path / FILE).read_bytes().splitlines()
    assert (len(lines), b'"id":2,' in lines[2]) == (3, True)
    with pytest.raises(ConfigError, match=r"heads\.jsonl: line 2 is not a head"):
        noted(tmp_path)


async def test_the_first_head_that_is_not_found_again_is_named(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str, tmp_path: Path
) -> None:
    for _ in range(4):
        await write(connection, 2)
        await note_now(fresh_postgres_url, tmp_path)
    heads = [Head(each.id, each.hash) for each in noted(tmp_path)]
    assert [each.id for each in heads] == [2, 4, 6, 8]
    assert (await verify(connection, *heads)).problem is None
    await rewrite(fresh_postgres_url, from_row=4)
    assert (await verify(connection)).problem is None  # whole in itself: the hashes hold no secret
    for order in (heads, heads[::-1]):
        verdict = await verify(connection, *order)
        assert (verdict.rows, str(verdict.problem)[:32]) == (3, "row 4 differs from the recorded ")
    await tamper(fresh_postgres_url, "DELETE FROM gateway.audit_log WHERE id > 3")
    assert str((await verify(connection, *heads)).problem).startswith(
        "row 4 is missing: the log ends before row 4, which was its head once"
    )


async def test_the_task_notes_the_head_and_says_who_owns_the_tables(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, owned = Celery("test", broker="memory://"), Celery("test")
    audit_tasks.add_tasks(app, fresh_postgres_url, tmp_path)
    audit_tasks.add_tasks(owned, as_owner(fresh_postgres_url), tmp_path)
    with caplog.at_level(logging.INFO):
        await asyncio.to_thread(app.tasks[audit_tasks.NOTE_HEAD])
        assert noted(tmp_path) == []  # an empty log has no head
        with app.connection_for_read() as broker, contextlib.closing(broker.SimpleQueue("celery")) as queue:
            again = queue.get(timeout=GUARD_S).headers
        assert again["task"] == audit_tasks.NOTE_HEAD
        assert again["eta"], "not at once: its first rows come any moment"
        await write(connection, 2)
        await asyncio.to_thread(app.tasks[audit_tasks.NOTE_HEAD])
    (found,) = noted(tmp_path)
    assert f"head 2:{found.hash}, 2 rows" in caplog.text
    assert OWNED not in caplog.text
    await asyncio.to_thread(owned.tasks[audit_tasks.NOTE_HEAD])
    assert OWNED in caplog.text


async def test_a_database_or_a_folder_that_is_away_is_met_again(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await write(connection, 1)
    (tmp_path / "file").touch()
    for number, (url, folder) in enumerate(
        ((fresh_postgres_url.replace("?host=", "?host=/none"), tmp_path), (fresh_postgres_url, tmp_path / "file")), 1
    ):
        app = Celery("test")
        audit_tasks.add_tasks(app, url, folder)
        await asyncio.to_thread(app.tasks[audit_tasks.NOTE_HEAD])
        assert caplog.text.count("could not be recorded") == number
    assert noted(tmp_path) == []


def test_a_worker_of_upkeep_notes_it_every_day(tmp_path: Path) -> None:
    settings = Settings(local=LocalConfig(data=str(tmp_path)))
    schedules = {
        queue: create_app(
            settings, (queue,), lambda: None, lambda: None, lambda: None, CollectorRegistry()
        ).conf.beat_schedule
        for queue in Queue
    }
    assert schedules.pop(Queue.UPKEEP)[audit_tasks.NOTE_HEAD]["schedule"] == 86_400
    assert all(audit_tasks.NOTE_HEAD not in schedule for schedule in schedules.values())
