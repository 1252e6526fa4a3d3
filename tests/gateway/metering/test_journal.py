from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import mint
from contracts.errors import ConfigError, JournalUnavailable
from gateway.metering.journal import frames
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.records import Closed, Opened, earlier_engine_request_id, engine_request_id
from tests.gateway.metering.samples import (
    FaultyDisk,
    closed,
    ended,
    journal_in,
    opened,
    placed,
    quick,
    rows,
    start,
    value,
)
from tests.small_disk import Kind, small_disk
from tests.waiting import eventually


async def test_closed_records_are_durable_when_closed_returns_and_the_others_do_not_sync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with journal_in(tmp_path / "gw", disk=disk) as journal:
        before, record = disk.syncs, opened()
        row = closed(record, tokens=17)
        journal.opened(record)
        journal.placed(placed(record))
        assert disk.syncs == before
        await journal.closed(row)
        assert disk.syncs > before
        assert await rows(journal) == [row]


async def test_those_who_wait_together_share_a_commit(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with journal_in(tmp_path / "gw", quick(segment_bytes=1 << 20), disk=disk) as journal:
        records = [opened() for _ in range(500)]
        for record in records:
            journal.opened(record)
        before = disk.syncs
        await asyncio.gather(*(journal.closed(closed(record)) for record in records))
        assert disk.syncs - before < 100
        assert sorted(row.key for row in await rows(journal)) == sorted(record.key for record in records)


async def test_closing_again_changes_nothing(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw") as journal:
        record = opened()
        journal.opened(record)
        await asyncio.gather(*(journal.closed(closed(record, tokens=n)) for n in (1, 2, 3)))
        await journal.closed(closed(record, tokens=4))
        await journal.closed(closed(opened()))  # was never opened
        assert [row.usage.completion_tokens for row in await rows(journal)] == [1]


async def test_a_cancelled_wait_does_not_undo_the_record(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw") as journal:
        record = opened()
        journal.opened(record)
        task = asyncio.create_task(journal.closed(closed(record)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with journal_in(tmp_path / "gw") as journal:
        assert [row.key for row in await rows(journal)] == [record.key]
        assert journal.left_open == []


async def test_records_out_of_order_are_a_bug_and_said_so(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw") as journal:
        record = opened()
        with pytest.raises(ValueError, match="not open"):
            journal.placed(placed(record))
        journal.opened(record)
        with pytest.raises(ValueError, match="already open"):
            journal.opened(record)


async def test_what_was_open_is_found_again_with_where_it_ran(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw") as journal:
        waiting, running, done = opened(), opened(), opened()
        for record in (waiting, running, done):
            journal.opened(record)
        journal.placed(placed(running))
        await journal.closed(closed(done))
    for _ in range(3):  # a start that resolves nothing loses nothing
        async with journal_in(tmp_path / "gw") as journal:
            found = {left.opened.key: left.placed for left in journal.left_open}
            assert found == {waiting.key: None, running.key: placed(running)}


async def test_open_attempts_survive_any_number_of_segments(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw") as journal:
        patient = opened()
        journal.opened(patient)
        journal.placed(placed(patient))
        for _ in range(100):
            await ended(journal)
        shipped, position = await journal.read((0, 0), 1_000)
        await journal.advance(position, len(shipped), save=True)
        assert len(list((tmp_path / "gw").glob("*.slj"))) <= 2
        assert journal.backlog_rows == 0
    async with journal_in(tmp_path / "gw") as journal:
        assert [left.opened.key for left in journal.left_open] == [patient.key]
        assert await rows(journal) == []
        await journal.closed(closed(patient))
        assert [row.key for row in await rows(journal)] == [patient.key]


async def test_a_segment_stays_until_everything_in_it_is_shipped(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw") as journal:
        keys = []
        for _ in range(60):
            record = await ended(journal)
            keys.append(record.key)
        segments = sorted((tmp_path / "gw").glob("*.slj"))
        assert len(segments) > 4
        some, position = await journal.read((0, 0), 25)
        await journal.advance(position, len(some), save=True)
        assert 0 < len(list((tmp_path / "gw").glob("*.slj"))) < len(segments)
    async with journal_in(tmp_path / "gw") as journal:
        assert [row.key for row in await rows(journal)] == keys[25:]
        assert journal.backlog_rows == 35


async def test_one_folder_has_one_journal(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw") as journal:
        with pytest.raises(ConfigError, match="in use by process"):
            await start(tmp_path / "gw")
        code = (
            "import asyncio, sys; from pathlib import Path; from contracts.errors import ConfigError\n"
            "from tests.gateway.metering.samples import quick, start\n"
            "try: asyncio.run(start(Path(sys.argv[1]), config=quick(lock_timeout_s=0.2)))\n"
            "except ConfigError as error: print(error)\n"
        )
        other = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", code, str(tmp_path / "gw")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "in use by process" in other.stdout
        assert f"gw: this journal folder is in use by process {os.getpid()}; waiting up to" in other.stderr  # at once
        await ended(journal)
    again = await start(tmp_path / "gw")
    await again.stop()


async def test_a_start_waits_for_a_holder_that_is_leaving(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw"):
        starting = asyncio.create_task(start(tmp_path / "gw", quick(lock_timeout_s=30)))
        await asyncio.sleep(0)
        assert not starting.done()
    await (await starting).stop()


async def test_a_folder_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use this journal folder"):
        await start(tmp_path / "file" / "gw")


async def test_a_disk_that_fails_at_the_start_stops_the_start(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.broken()
    with pytest.raises(ConfigError, match="cannot write the journal"):
        await start(tmp_path / "gw", disk=disk)
    disk.mend()
    await (await start(tmp_path / "gw", disk=disk)).stop()


async def test_a_full_disk_stops_admission_until_a_write_succeeds(tmp_path: Path) -> None:
    disk, registry = FaultyDisk(), CollectorRegistry()
    async with journal_in(tmp_path / "gw", disk=disk, registry=registry) as journal:
        before, refused, after = opened(), opened(), opened()
        journal.opened(before)
        disk.full()
        with pytest.raises(JournalUnavailable):
            journal.opened(refused)
        assert not journal.healthy
        with pytest.raises(JournalUnavailable):
            journal.opened(opened())
        with pytest.raises(JournalUnavailable):
            await journal.closed(closed(before))
        assert value(registry, "slipstream_journal_healthy") == 0
        disk.mend()
        await eventually(lambda: journal.healthy)
        assert value(registry, "slipstream_journal_healthy") == 1
        journal.opened(after)
        await journal.closed(closed(after))
        await journal.closed(closed(before))  # the one that was refused has been written meanwhile
        assert [row.key for row in await rows(journal)] == [before.key, after.key]
    async with journal_in(tmp_path / "gw", registry=(again := CollectorRegistry())) as journal:
        assert journal.left_open == []
        assert value(again, "slipstream_journal_damaged_segments_total") == 0
        assert value(again, "slipstream_journal_torn_tails_total") == 0  # a full disk is no crash


async def test_after_a_failed_fdatasync_the_file_is_left_and_its_records_are_written_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with journal_in(tmp_path / "gw", quick(segment_bytes=1 << 20), disk=disk) as journal:
        safe, lost, still = opened(), opened(), opened()
        for record in (safe, lost, still):
            journal.opened(record)
        await journal.closed(closed(safe))
        abandoned = max((tmp_path / "gw").glob("*.slj"))
        disk.broken()
        with pytest.raises(JournalUnavailable):
            await journal.closed(closed(lost))
        assert [row.key for row in await rows(journal)] == [safe.key]
        disk.mend()
        await eventually(lambda: journal.healthy)
        await journal.closed(closed(lost))
        assert [row.key for row in await rows(journal)] == [safe.key, lost.key]
        # the new file holds, by itself, all that was not confirmed
        kept = frames.scan(max((tmp_path / "gw").glob("*.slj")).read_bytes()).frames
        assert max((tmp_path / "gw").glob("*.slj")) != abandoned
        assert [kind for kind, _, _ in kept] == [frames.HEADER, frames.OPENED, frames.OPENED, frames.CLOSED]
    async with journal_in(tmp_path / "gw") as journal:
        assert [left.opened.key for left in journal.left_open] == [still.key]


async def test_failed_probes_leave_no_files_behind(tmp_path: Path) -> None:
    disk, registry = FaultyDisk(), CollectorRegistry()
    async with journal_in(tmp_path / "gw", disk=disk, registry=registry) as journal:
        disk.write_error = OSError(errno.ENOSPC, "No space left on device")
        with pytest.raises(JournalUnavailable):
            journal.opened(opened())
        await eventually(lambda: value(registry, "slipstream_journal_failures_total") >= 5)
        assert len(list((tmp_path / "gw").glob("*.slj"))) <= 2
        disk.mend()
        await eventually(lambda: journal.healthy)


async def test_stopping_while_the_disk_fails_raises_to_those_who_wait(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with journal_in(tmp_path / "gw", quick(probe_interval_s=60), disk=disk) as journal:
        record = opened()
        journal.opened(record)
        disk.broken()
        with pytest.raises(JournalUnavailable):
            await journal.closed(closed(record))
    with pytest.raises(JournalUnavailable):
        journal.opened(opened())
    disk.mend()
    async with journal_in(tmp_path / "gw", disk=disk) as journal:
        # its end had been written, though never confirmed: either way it is there once
        assert len(await rows(journal)) + len(journal.left_open) == 1


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
async def test_a_disk_that_is_really_full(kind: Kind) -> None:
    with small_disk(kind, 4_000_000) as disk:
        folder = disk.path / "gw"
        async with journal_in(folder, quick(segment_bytes=1 << 20)) as journal:
            disk.fill(leave_bytes=40_000)
            admitted = []
            with pytest.raises(JournalUnavailable):  # noqa: PT012
                for _ in range(10_000):
                    record = opened()
                    journal.opened(record)
                    admitted.append(record)
            ended = admitted[:20]
            for record in ended[:10]:
                with pytest.raises(JournalUnavailable):
                    await journal.closed(closed(record))
            disk.free()
            await eventually(lambda: journal.healthy)
            await asyncio.gather(*(journal.closed(closed(record)) for record in ended))
        async with journal_in(folder) as journal:
            assert {left.opened.key for left in journal.left_open} == {record.key for record in admitted[20:]}
            assert sorted(row.key for row in await rows(journal)) == sorted(record.key for record in ended)


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
async def test_a_journal_does_not_begin_on_a_full_disk_and_says_why(kind: Kind) -> None:
    with small_disk(kind, 4_000_000) as disk:
        record = opened()
        async with journal_in(disk.path / "gw") as journal:
            journal.opened(record)
        disk.fill()
        with pytest.raises(ConfigError, match=r"cannot write the journal: .*; free some space"):
            await start(disk.path / "gw")
        disk.free()
        async with journal_in(disk.path / "gw") as journal:
            assert [left.opened.key for left in journal.left_open] == [record.key]


async def test_a_disk_that_became_read_only_stops_admission() -> None:
    with small_disk("ext4", 4_000_000) as disk:
        async with journal_in(disk.path / "gw") as journal:
            running = opened()
            journal.opened(running)
            disk.make_read_only()
            with pytest.raises(JournalUnavailable):
                await journal.closed(closed(running))
            with pytest.raises(JournalUnavailable, match="Read-only file system"):
                journal.opened(opened())


async def test_a_torn_tail_is_cut_and_everything_before_it_kept(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw", quick(segment_bytes=1 << 20)) as journal:
        first, last = opened(), opened()
        journal.opened(first)
        await journal.closed(closed(first))
        segment = max((tmp_path / "gw").glob("*.slj"))
        before = segment.stat().st_size
        journal.opened(last)
        whole = segment.read_bytes()
    # one at each of its ends, and some between
    for size in sorted(
        {*range(before, before + 12), *range(before, len(whole), 7), *range(len(whole) - 8, len(whole))}
    ):
        folder = tmp_path / f"torn-{size}"
        folder.mkdir()
        (folder / segment.name).write_bytes(whole[:size])
        registry = CollectorRegistry()
        async with journal_in(folder, registry=registry) as journal:
            assert journal.left_open == []
            assert [row.key for row in await rows(journal)] == [first.key]
            assert value(registry, "slipstream_journal_torn_tails_total") == (1 if size > before else 0)
            assert value(registry, "slipstream_journal_damaged_segments_total") == 0
            assert (folder / segment.name).stat().st_size == before


async def test_damage_is_loud_and_costs_only_the_record_it_hit(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw", quick(segment_bytes=1 << 20)) as journal:
        records = [opened() for _ in range(5)]
        for record in records:
            journal.opened(record)
            journal.placed(placed(record))
            await journal.closed(closed(record))
        segment = max((tmp_path / "gw").glob("*.slj"))
    data = bytearray(segment.read_bytes())
    third = [entry for entry in frames.scan(bytes(data)).frames if entry[0] == frames.CLOSED][2]
    data[third[2] - 5] ^= 1
    segment.write_bytes(data)
    registry = CollectorRegistry()
    async with journal_in(tmp_path / "gw", registry=registry) as journal:
        assert value(registry, "slipstream_journal_damaged_segments_total") == 1
        assert [path.stem for path in (tmp_path / "gw").glob("*.bad")] == [segment.stem]
        assert not segment.exists()
        # what it destroyed was an end: that attempt is open again, for recovery to ask about
        assert [left.opened.key for left in journal.left_open] == [records[2].key]
        expected = [record.key for record in records if record is not records[2]]
        assert sorted(row.key for row in await rows(journal)) == sorted(expected)
        assert journal.backlog_rows == 4
    async with journal_in(tmp_path / "gw", registry=(again := CollectorRegistry())) as journal:
        assert value(again, "slipstream_journal_damaged_segments_total") == 0
        assert sorted(row.key for row in await rows(journal)) == sorted(expected)


async def test_a_placement_without_its_opening_is_counted(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw", quick(segment_bytes=1 << 20)) as journal:
        record = opened()
        journal.opened(record)
        journal.placed(placed(record))
        segment = max((tmp_path / "gw").glob("*.slj"))
    data = bytearray(segment.read_bytes())
    data[len(frames.header()) + frames.HEAD_BYTES + 3] ^= 1
    segment.write_bytes(data)
    registry = CollectorRegistry()
    await (await start(tmp_path / "gw", registry=registry)).stop()
    assert value(registry, "slipstream_journal_orphans_total") == 1


async def test_an_attempt_closed_in_an_older_file_than_it_is_opened_in_is_closed(tmp_path: Path) -> None:
    # a disk error came between the write of its end and the sync, and the crash before the next file had it
    record = opened()
    opening = frames.encode(frames.OPENED, msgspec.msgpack.encode(record))
    ending = frames.encode(frames.CLOSED, msgspec.msgpack.encode(closed(record)))
    (tmp_path / "gw").mkdir()
    (tmp_path / "gw" / "00000001.slj").write_bytes(frames.header() + opening + ending)
    (tmp_path / "gw" / "00000002.slj").write_bytes(frames.header() + opening)
    async with journal_in(tmp_path / "gw") as journal:
        assert journal.left_open == []
        assert [row.key for row in await rows(journal)] == [record.key]


async def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gw").mkdir()
    (tmp_path / "gw" / "00000001.slj").write_bytes(frames.encode(frames.HEADER, b"\x02"))
    with pytest.raises(ConfigError, match="newer version"):
        await start(tmp_path / "gw")


async def test_a_lost_position_ships_again_rather_than_not_at_all(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "gw", quick(segment_bytes=1 << 20)) as journal:
        record = await ended(journal)
        _, position = await journal.read((0, 0), 10)
        await journal.advance(position, 1, save=True)
        assert await rows(journal) == []
    (tmp_path / "gw" / "shipped").write_bytes(bytes(20))
    async with journal_in(tmp_path / "gw") as journal:
        assert [row.key for row in await rows(journal)] == [record.key]


async def test_a_position_that_cannot_be_saved_is_no_error(tmp_path: Path) -> None:
    class Disk2(Disk):
        def rename(self, old: Path, new: Path) -> None:
            raise OSError(errno.EIO, "I/O error")

    async with journal_in(tmp_path / "gw", disk=Disk2()) as journal:
        await journal.advance((1, 0), 0, save=True)


def test_no_attempts_engine_id_is_the_beginning_of_anothers() -> None:
    """Engines abort by prefix: stopping the first attempt must not stop the one that took its place."""
    ids = [engine_request_id(request_id, attempt) for request_id in (mint(), mint()) for attempt in range(12)]
    assert len(set(ids)) == len(ids)
    assert not [(one, other) for one in ids for other in ids if one != other and other.startswith(one)]
    assert earlier_engine_request_id("req_a", 1) == "req_a-1", "what a release before may have left open"


def test_records_of_an_older_version_are_still_read() -> None:
    class Newer(Opened, frozen=True, array_like=True, gc=False):
        added: str = "default"

    old = msgspec.msgpack.encode(opened())
    assert msgspec.msgpack.decode(old, type=Newer).added == "default"
    new = msgspec.msgpack.encode(closed(opened()))
    assert msgspec.msgpack.decode(new, type=Closed).usage.completion_tokens == 5
