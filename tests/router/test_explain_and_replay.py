"""Why a request went where it went, asked of a running router; and a day decided again from its log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import msgspec
import pytest
from click.testing import CliRunner

from contracts.errors import ConfigError
from contracts.lease import LeaseEnd
from contracts.usage import Finish, Usage
from router import event_log, explain
from router.control.client import ControlClient
from router.core.events import Event
from router.core.record import Record, RecordBook
from router.server import RouterServer
from slipstream.commands import fleet as fleet_commands
from slipstream.commands import router as router_commands
from tests.router.core_driver import Core
from tests.router.fakes import TOKEN, Connect, FakeEngines, StartRouter, ask, fleet
from tests.waiting import eventually


def explained(router: RouterServer, request_id: str) -> list[Record]:
    with ControlClient(f"127.0.0.1:{router.control_port}", TOKEN) as control:
        return control.explain(request_id)


def leases(router: RouterServer) -> int:
    return sum(replica.leases for replica in router.dispatcher.fleet.replicas.values())


async def test_a_decision_is_explained_and_completed_by_what_came_of_it(
    start_router: StartRouter, connect: Connect
) -> None:
    router = await start_router(policy="prefix")
    client = await connect(router.port)
    client.publish(fleet())
    hashes = bytes(range(48))
    for number in range(2):
        wanted = msgspec.structs.replace(ask(f"l{number}", tokens=300), prefix_hashes=hashes)
        lease = await client.acquire(wanted)
        client.first_token(f"l{number}", 0.05, 100 * number)
        client.release(LeaseEnd(f"l{number}", Finish.COMPLETE, Usage(300, 7, 100 * number)))
        await eventually(lambda: leases(router) == 0)
    (record,) = await asyncio.to_thread(explained, router, "req_l1")
    assert record.chosen == lease.engine.replica_id
    assert {one.replica_id for one in record.candidates} == {"r1", "r2"}
    warm = next(one for one in record.candidates if one.replica_id == record.chosen)
    assert warm.overlap_blocks == record.blocks == 3
    assert (record.actual_cached_tokens, record.completion_tokens) == (100, 7)
    assert record.actual_s is not None
    text = explain.told([record])
    assert f"> {record.chosen}" in text
    assert "reported 100" in text
    assert f"objective: first token within {1_000 * record.ttft_slo_s:,.0f} ms" in text
    assert "share 100, of its project 100" in text
    nobody = msgspec.structs.replace(record, ttft_slo_s=0.0, share=3.0, project_share=0.5)
    assert "objective: none: background work, vectors or scores" in explain.told([nobody])
    assert "share 300, of its project 50" in explain.told([nobody])
    assert f"policy 'prefix' chose {record.chosen}" in text


@pytest.mark.parametrize(("told_s", "kept_s"), [(0.1, 0.1), (60.0, 0.2), (0.0, 0.2)])
def test_a_time_to_the_first_token_is_no_longer_than_its_lease(told_s: float, kept_s: float) -> None:
    core = Core()
    core.placed("l1")
    core.now += 0.2
    core.began("l1", told_s)
    (record,) = core.core.records.of("req_l1")
    assert record.actual_s == pytest.approx(kept_s)


async def test_what_the_commands_print_is_explained_where_it_is_printed(
    start_router: StartRouter, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet())
    lease = await client.acquire(ask("l1"))
    client.first_token("l1", 0.05, 0)
    client.release(LeaseEnd("l1", Finish.COMPLETE, Usage(10, 5, 0)))
    await eventually(lambda: leases(router) == 0)
    address = f"127.0.0.1:{router.control_port}"
    settings = SimpleNamespace(control_address=address, reader_token=TOKEN)
    for commands in (router_commands, fleet_commands):
        monkeypatch.setattr(commands, "running_settings", lambda *_: settings)
    run = CliRunner().invoke
    explanation = await asyncio.to_thread(run, router_commands.router, ["explain", "req_l1"])
    assert f"> {lease.engine.replica_id}" in explanation.stdout
    assert "regret" in explanation.stdout
    for word in ("regret: by how much", "blocks: units by which prompt prefixes", "objective: time to first token"):
        assert word in explanation.stderr
    plain = await asyncio.to_thread(run, fleet_commands.fleet, [])
    assert "headroom" in plain.stdout
    assert max(map(len, plain.stdout.splitlines())) <= 100
    assert not plain.stderr
    table = await asyncio.to_thread(run, fleet_commands.fleet, ["--explain"])
    assert f"{lease.engine.replica_id}: {lease.engine.url}" in table.stdout
    assert ": at most " in table.stdout
    for column in ("headroom: KV tokens", "speed: prompt tokens that it computes per second"):
        assert column in table.stderr
    for command, arguments in ((router_commands.router, ["explain", "req_l1"]), (fleet_commands.fleet, [])):
        assert not (await asyncio.to_thread(run, command, [*arguments, "--json"])).stderr
    unknown = await asyncio.to_thread(run, router_commands.router, ["explain", "nonsense"])
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "no decision about this request on record" in unknown.stderr


async def test_a_refusal_is_explained(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router(explain_share=0.0)
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",), max_concurrency=1))
    await client.acquire(ask("l1"))
    await asyncio.gather(client.acquire(ask("l2", deadline_s=0.0)), return_exceptions=True)
    (record,) = await asyncio.to_thread(explained, router, "req_l2")
    assert record.refused.startswith("overloaded: ")
    assert record.retry_after_s
    assert "retry in" in explain.told([record])
    assert await asyncio.to_thread(explained, router, "req_l1") == []


def test_records_are_bounded_and_sampled_by_request() -> None:
    book = RecordBook(3, 0.5)
    wanted = [number for number in range(1_000) if book.wants(f"req_{number}")]
    assert 400 < len(wanted) < 600
    assert all(book.wants(f"req_{number}") for number in wanted)


async def test_a_recorded_day_is_decided_again_alike(
    start_router: StartRouter, connect: Connect, engines: FakeEngines, tmp_path: Path
) -> None:
    log = tmp_path / "events"
    router = await start_router(policy="prefix", event_log=str(log))
    client = await connect(router.port)
    client.publish(fleet(max_concurrency=2))
    for number in range(40):
        hashes = b"".join(bytes([number % 3, block] * 8) for block in range(1 + number % 5))
        wanted = msgspec.structs.replace(ask(f"l{number}", tokens=80), prefix_hashes=hashes)
        await client.acquire(wanted)
        client.first_token(f"l{number}", 0.01, 0)
        client.release(LeaseEnd(f"l{number}", Finish.COMPLETE, Usage(80, 5, 0)))
    await eventually(lambda: leases(router) == 0)
    await router.stop()
    steps = list(event_log.replay(log, router.config))
    assert sum(decided.startswith("granted") for step in steps for decided in step.decided) == 40
    assert [step.decided for step in steps] == [step.logged for step in steps]
    log.write_bytes(log.read_bytes()[:-3])  # torn by a crash
    assert len(list(event_log.replay(log, router.config))) == len(steps) - 1

    said = replayed(log)
    assert f"{len(steps) - 1:,} events, 0 decided differently" in said
    assert "granted" in said
    assert "then" in said


def test_every_event_can_be_logged() -> None:
    assert set(event_log.KINDS) == set(get_args(Event))


def replayed(log: Path, *options: str) -> str:
    result = CliRunner().invoke(router_commands.router, ["replay", str(log), *options], catch_exceptions=False)
    assert result.exit_code == 0
    return str(result.output)


async def test_a_log_can_be_replayed_while_it_is_written_and_the_one_before_is_kept(
    start_router: StartRouter, connect: Connect, tmp_path: Path
) -> None:
    log = tmp_path / "events"
    log.touch()
    assert "no events yet" in replayed(log)
    first = await start_router(event_log=str(log))
    client = await connect(first.port)
    client.publish(fleet(max_concurrency=2))
    await client.acquire(ask("l1"))
    # polls come by on their own, and with them what is buffered
    await eventually(lambda: any("granted l1" in one for _, _, logged in event_log.read(log) for one in logged))
    await first.stop()
    written = log.read_bytes()
    second = await start_router(event_log=str(log))
    assert log.with_suffix(".1").read_bytes() == written
    await second.stop()


@pytest.mark.parametrize("content", [b"[router]\nport = 1\n", b"\x00", b"\x00\x00\x00\x04{}{}"])
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be replayed"):
        replayed(file)
