from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import CollectorRegistry

from contracts.errors import EngineFailed
from contracts.usage import Finish, Outcome, Usage
from gateway.metering.journal.records import AttemptKey, Closed, Opened
from gateway.metering.journal.recovery import Recovery
from gateway.metering.metrics import MeteringMetrics
from tests.gateway.metering.samples import opened, placed, quick, rows, start, value


async def _left(path: Path, *records: tuple[Opened, bool]) -> None:
    """A journal left by a crash: each record opened, and placed where told."""
    journal = await start(path)
    for record, was_placed in records:
        journal.opened(record)
        if was_placed:
            journal.placed(placed(record))
    await journal.stop()


async def _recovered(
    path: Path, ask: object, resolve_timeout_s: float = 0.05
) -> tuple[dict[AttemptKey, Closed], CollectorRegistry]:
    registry = CollectorRegistry()
    config = quick(resolve_timeout_s=resolve_timeout_s)
    shown = MeteringMetrics(registry)
    journal = await start(path, config)
    await Recovery(journal, ask, config, shown).resolve()  # type: ignore[arg-type]
    found = await rows(journal)
    await journal.stop()
    assert len({row.key for row in found}) == len(found)
    journal = await start(path, config)
    assert journal.left_open == []
    await journal.stop()
    return {row.key: row for row in found}, registry


async def _never(url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
    raise AssertionError("nothing was placed")


async def test_an_attempt_that_was_never_placed_used_nothing(tmp_path: Path) -> None:
    record = opened()
    await _left(tmp_path / "gw", (record, False))
    found, registry = await _recovered(tmp_path / "gw", _never)
    row = found[record.key]
    assert (row.outcome, row.finish, row.usage, row.billed) == (Outcome.EXACT, Finish.NOT_PLACED, Usage(), False)
    assert row.replica_id is None
    assert row.opened == record
    assert value(registry, "slipstream_recovered_attempts_total", outcome="exact") == 1


async def test_the_engine_is_asked_where_the_attempt_ran(tmp_path: Path) -> None:
    record = opened(attempt=1)
    asked = []

    async def ask(url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
        asked.append((url, driver, request_id, attempt))
        return Usage(prompt_tokens=12, completion_tokens=34)

    await _left(tmp_path / "gw", (record, True))
    found, _ = await _recovered(tmp_path / "gw", ask, resolve_timeout_s=30)
    where = placed(record)
    assert asked == [(where.url, where.driver, record.request_id, 1)]
    row = found[record.key]
    assert (row.outcome, row.finish, row.billed) == (Outcome.EXACT, Finish.GATEWAY_CRASH, False)
    assert row.usage.completion_tokens == 34
    assert row.replica_id == where.replica_id


async def test_an_engine_that_does_not_know_yet_is_asked_again(tmp_path: Path) -> None:
    record = opened()
    answers: list[Usage | Exception] = [EngineFailed("running"), OSError("refused"), Usage(completion_tokens=3)]

    async def ask(url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await _left(tmp_path / "gw", (record, True))
    found, _ = await _recovered(tmp_path / "gw", ask, resolve_timeout_s=30)
    assert found[record.key].usage.completion_tokens == 3


async def test_what_nobody_knows_is_recorded_as_unknown(tmp_path: Path) -> None:
    silent, forgotten, broken, dead = (opened() for _ in range(4))

    async def ask(url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
        if request_id == forgotten.request_id:
            return None
        if request_id == broken.request_id:
            raise KeyError("a bug")
        if request_id == dead.request_id:
            raise EngineFailed("cannot be reached")
        await asyncio.Event().wait()
        return None

    await _left(tmp_path / "gw", *((record, True) for record in (silent, forgotten, broken, dead)))
    found, registry = await _recovered(tmp_path / "gw", ask)
    for record in (silent, forgotten, broken, dead):
        row = found[record.key]
        assert (row.outcome, row.finish, row.usage, row.billed) == (
            Outcome.UNKNOWN,
            Finish.GATEWAY_CRASH,
            Usage(),
            False,
        )
    assert value(registry, "slipstream_recovered_attempts_total", outcome="unknown") == 4


async def test_more_attempts_than_are_asked_at_once_are_all_resolved(tmp_path: Path) -> None:
    records = [opened() for _ in range(200)]

    async def ask(url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
        await asyncio.sleep(0)
        return Usage(completion_tokens=1)

    await _left(tmp_path / "gw", *((record, True) for record in records))
    found, _ = await _recovered(tmp_path / "gw", ask, resolve_timeout_s=60)
    assert set(found) == {record.key for record in records}
    assert all(row.outcome is Outcome.EXACT for row in found.values())
