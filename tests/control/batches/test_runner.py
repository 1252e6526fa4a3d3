"""Batches on a real PostgreSQL against a gateway over HTTP: whatever is killed between any two steps, each line has one
result, and exactly the results are billed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from contracts.dated_request_id import mint as mint_request
from contracts.desired_state import Model, Pool
from contracts.errors import BodyTooLarge, ServiceError
from contracts.generation import Caller, Tier
from contracts.usage import Usage
from control.batches import batches, claims, files, line_runner
from control.batches.api import BatchApi
from control.batches.folder_store import DRAFTS, FolderStore
from control.batches.machine import CANCEL_ASKED, UNFINISHED, BatchStatus
from control.batches.objects import FILE_ID, BatchObject, NewBatch, new_id
from control.batches.overview import newest_batches, whole_batch
from control.batches.runner import BatchRunner
from control.batches.tasks import delete_left_over
from control.billing.verification import last_days, verify
from control.deferred import runner as leased
from control.deferred.leases import LEASE_S, Claim, LeaseLost
from gateway.auth.key_record import KeyRecord
from gateway.auth.keys import mint
from gateway.desired import document
from gateway.limits.levels import Levels
from gateway.metering.ledger.ledger import Ledger
from storage.engine import connect, lazy_pool
from tests.control.batches.answering import PEPPER, Gateway, Refused, closed_run, gateway
from tests.control.killable import GUARD_S, Killable, working
from tests.examples import examples
from tests.waiting import eventually

LEDGER = """
SELECT request_id, prompt_tokens, completion_tokens, cached_tokens, amount_micro, price_percent, billed
  FROM gateway.usage_events WHERE gateway_id = 'batches' AND key_id = $1
"""
EXPIRE = "UPDATE gateway.batches SET expires_at = now() WHERE id = $1"
FREE = "UPDATE gateway.batches SET lease_until = now() - interval '1 second' WHERE lease_until IS NOT NULL"
RENEWED = f"SELECT lease_until > turn_at + interval '{LEASE_S} seconds' FROM gateway.batches WHERE id = $1"
"""Whether a batch's lease was renewed since its claim, which sets both."""
LEFT = """
SELECT count(*) FROM pg_stat_activity WHERE application_name = 'slipstream-batches' AND datname = current_database()
"""
Connection = Any


class World:
    """A database, a store of files, and tenants."""

    def __init__(self, url: str, connection: Connection, store: FolderStore) -> None:
        self.url = url
        self.connection = connection
        self.store = store

    async def tenant(self) -> tuple[Caller, bytes]:
        """A new organization's key, with its hash."""
        insert = "INSERT INTO gateway.{} RETURNING id"
        organization = await self.connection.fetchval(insert.format("organizations (name) VALUES ('o')"))
        project = await self.connection.fetchval(
            insert.format("projects (organization_id, name) VALUES ($1, 'p')"), organization
        )
        minted = mint(PEPPER)
        key = await self.connection.fetchval(
            insert.format("api_keys (project_id, name, hash, display) VALUES ($1, 'k', $2, 'd')"), project, minted.hash
        )
        return Caller(str(organization), str(project), str(key)), minted.hash

    async def file(self, owner: Caller, lines: list[dict[str, Any]]) -> str:
        file_id, text = new_id(FILE_ID), b"\n".join(map(msgspec.json.encode, lines))
        async with self.store.draft() as draft:
            draft.write_bytes(text)
            await files.begin(self.connection, owner, file_id, "batch", "in.jsonl", len(text), 3600)
            await self.store.put(file_id, draft)
        await files.finish(self.connection, owner, file_id)
        return file_id

    async def batch(self, owner: Caller, count: int) -> str:
        """A batch of lines 1 to `count`."""
        return await self.batch_of(owner, [asked(number) for number in range(1, count + 1)])

    async def batch_of(self, owner: Caller, lines: list[dict[str, Any]]) -> str:
        """A batch of these lines."""
        file_id = await self.file(owner, lines)
        body = NewBatch(input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h")
        return (await batches.create(self.connection, owner, body)).id

    async def ended(self, owner: Caller, batch_id: str) -> BatchObject:
        async def found() -> BatchObject | None:
            batch = await batches.find(self.connection, owner, batch_id)
            return None if batch.status in UNFINISHED else batch

        return await eventually(found)

    async def read(self, file_id: str | None) -> list[dict[str, Any]]:
        """The lines of a file; None: none."""
        if file_id is None:
            return []
        text = b"".join([chunk async for chunk in self.store.read(file_id)])
        return [msgspec.json.decode(line) for line in text.splitlines()]

    async def check(self, owner: Caller, served: Gateway, batch: BatchObject, count: int) -> None:
        """Each line has one result, and the ledger has exactly the results."""
        output, errors = await self.read(batch.output_file_id), await self.read(batch.error_file_id)
        assert sorted(each["custom_id"] for each in output + errors) == sorted(f"c{n}" for n in range(1, count + 1))
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (count, len(output), len(errors))
        rows = {row["request_id"]: row for row in await self.connection.fetch(LEDGER, owner.key_id)}
        given = [each["response"] for each in output]
        assert sorted(rows) == sorted(each["request_id"] for each in given)
        for each in given:
            row, usage = rows[each["request_id"]], each["body"]["usage"]
            assert (row["prompt_tokens"], row["completion_tokens"]) == (
                usage["prompt_tokens"],
                usage["completion_tokens"],
            )
            assert row["billed"]
        assert batch.usage.total_tokens == sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows.values())
        assert not await self.connection.fetchval(
            "SELECT count(*) FROM gateway.batch_results WHERE batch_id = $1", batch.id
        )


def asked(number: int, **more: Any) -> dict[str, Any]:
    body = {"model": "chat", "messages": [{"role": "user", "content": str(number)}]}
    return {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body, **more}


@pytest.fixture(scope="module")
async def world(module_postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    connection = await connect(module_postgres_url)
    fleet = document.encode((Model("chat", Tier.CHAT, "one", 4_096),), (Pool("one", "sglang"),))
    await connection.execute("INSERT INTO gateway.desired_states (version, document) VALUES (1, $1)", fleet)
    await connection.execute(
        "INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro,"
        " output_micro, offline_percent) VALUES ('chat', now() - interval '1 day', 3000001, 300001, 0, 5000001, 50)"
    )
    yield World(module_postgres_url, connection, FolderStore(tmp_path_factory.mktemp("files")))
    await connection.close()


@pytest.fixture(autouse=True)
async def _quick(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused lines are asked again at once, and no worker finds a batch of another test."""
    monkeypatch.setattr(line_runner, "PAUSE_S", 0.0)
    for table in ("batch_results", "batches"):
        await world.connection.execute(f"DELETE FROM gateway.{table}")


class KillableBatches(Killable, BatchRunner):
    uncounted = (claims.by_status, claims.renew, claims.has_waiting)


def runner_of(world: World, served: Gateway) -> KillableBatches:
    return KillableBatches(world.url, served.url, lambda: PEPPER, lambda: world.store, None)


async def killed(world: World, runner: KillableBatches, owner: Caller, batch_id: str) -> None:
    """Work until it is dead or the batch has ended, and leave as a killed process does: giving nothing back."""
    task = asyncio.create_task(runner.run(asyncio.Event(), asyncio.Event()))
    waiting = [asyncio.create_task(runner.dead.wait()), asyncio.create_task(world.ended(owner, batch_id))]
    await asyncio.wait((task, *waiting), return_when=asyncio.FIRST_COMPLETED, timeout=GUARD_S)
    for each in (task, *waiting):
        each.cancel()
    await asyncio.wait((task, *waiting))

    async def gone() -> bool:  # a statement that it sent may still run
        return not await world.connection.fetchval(LEFT)

    await eventually(gone)
    await world.connection.execute(FREE)


def text_of(number: int) -> str:
    return f"answer {number}"


async def test_each_line_has_its_answer_and_half_its_price(world: World) -> None:
    owner, key_hash = await world.tenant()
    batch_id = await world.batch(owner, 40)
    async with gateway(owner, key_hash, text_of) as served, working(runner_of(world, served)):
        batch = await world.ended(owner, batch_id)
        await world.check(owner, served, batch, 40)
    assert batch.status is BatchStatus.COMPLETED
    assert batch.model == "chat"
    output = await world.read(batch.output_file_id)
    assert [each["custom_id"] for each in output] == [f"c{number}" for number in range(1, 41)]
    assert output[6]["response"]["body"]["choices"][0]["message"]["content"] == "answer 7"
    for row in await world.connection.fetch(LEDGER, owner.key_id):
        exact = (row["prompt_tokens"] - 1) * 3_000_001 + 300_001 + row["completion_tokens"] * 5_000_001
        assert (row["price_percent"], row["amount_micro"]) == (50, (exact * 50 + 50_000_000) // 100_000_000)
    verified = await asyncio.to_thread(verify, world.url, *last_days(1))
    assert verified.rows >= 40
    assert verified.right


@given(st.lists(st.tuples(st.integers(1, 14), st.booleans()), max_size=4), st.sampled_from(["", "cancel", "expire"]))
@examples(60, gate=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_kills_between_any_two_steps(world: World, kills: list[tuple[int, bool]], then: str) -> None:
    """Whether it is cancelled, or its window ends, after the kills."""
    owner, key_hash = await world.tenant()
    async with gateway(owner, key_hash, text_of) as served:
        batch_id = await world.batch(owner, 20)
        for last_step, before in kills:
            runner = runner_of(world, served)
            runner.last_step, runner.before = last_step, before
            await killed(world, runner, owner, batch_id)
        over = (await batches.find(world.connection, owner, batch_id)).status
        if then == "expire":
            await world.connection.execute(EXPIRE, batch_id)
        elif then == "cancel" and over in (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS):
            assert (await batches.cancel(world.connection, owner, batch_id)).status is BatchStatus.CANCELLING
        async with working(runner_of(world, served)):
            batch = await world.ended(owner, batch_id)
        if over is BatchStatus.VALIDATING and then == "cancel":
            assert (batch.status, batch.request_counts.total) == (BatchStatus.CANCELLED, 0)
            return
        await world.check(owner, served, batch, 20)
        left = {error["error"]["code"] for error in await world.read(batch.error_file_id)}
        assert left <= {"cancel": {"batch_cancelled"}, "expire": {"batch_expired"}, "": set[str]()}[then]
        ends = {"cancel": BatchStatus.CANCELLED, "expire": BatchStatus.EXPIRED}
        if left:
            assert batch.status is ends[then]


def _answers(*scripts: Iterator[Any]) -> Any:
    """Answers to lines 1, 2 … by their scripts; of all others, their text."""

    def answer(number: int) -> str:
        found = next(scripts[number - 1], None) if number <= len(scripts) else None
        if found is not None:
            raise found
        return text_of(number)

    return answer


async def test_refusals_faults_and_mistakes(world: World) -> None:
    """Lines: refused for lack of room seven times; failed four times; failed for good; a mistake; over its budget;
    without an answer."""
    owner, key_hash = await world.tenant()
    answer = _answers(
        iter([Refused(429, "rate_limit_exceeded")] * 4 + [Refused(503, "overloaded")] * 3),
        iter([Refused(502, "engine_failed")] * 4),
        iter([Refused(500, "internal_error")] * 9),
        iter([Refused(400, "context_length_exceeded")]),
        iter([Refused(429, "insufficient_quota", **{"x-should-retry": "false"})]),
        iter([Refused(0, "")] * 9),
    )
    batch_id = await world.batch(owner, 8)
    async with gateway(owner, key_hash, answer) as served, working(runner_of(world, served)):
        batch = await world.ended(owner, batch_id)
        await world.check(owner, served, batch, 8)
    assert [served.asked[number] for number in range(1, 8)] == [8, 5, 5, 1, 1, 5, 1]
    *errors, lost = await world.read(batch.error_file_id)
    assert (lost["response"], lost["error"]["code"]) == (None, "no_answer")
    assert [(each["response"]["status_code"], each["response"]["body"]["error"]["code"]) for each in errors] == [
        (500, "internal_error"),
        (400, "context_length_exceeded"),
        (429, "insufficient_quota"),
    ]


async def test_a_rotated_key_goes_on_and_a_revoked_one_is_refused(world: World) -> None:
    owner, key_hash = await world.tenant()
    rotated = mint(PEPPER).hash

    def answer(number: int) -> str:
        served.key_hash = rotated
        if number > 20:
            raise Refused(401, "revoked_api_key")
        return text_of(number)

    async def rotate() -> None:
        """A while after the gateway."""
        await eventually(lambda: served.key_hash == rotated and served.unknown)
        await world.connection.execute("UPDATE gateway.api_keys SET hash = $2 WHERE id = $1", owner.key_id, rotated)

    batch_id = await world.batch(owner, 30)
    async with gateway(owner, key_hash, answer) as served, working(runner_of(world, served)):
        await rotate()
        batch = await world.ended(owner, batch_id)
        await world.check(owner, served, batch, 30)
    errors = await world.read(batch.error_file_id)
    assert {(each["response"]["status_code"], each["response"]["body"]["error"]["code"]) for each in errors} == {
        (401, "revoked_api_key")
    }
    assert len(errors) == 10


async def test_a_running_batch_is_cancelled_and_what_was_in_flight_costs_nothing(world: World) -> None:
    owner, key_hash = await world.tenant()
    many = 60

    def answer(number: int) -> str:
        if number > 10:
            raise Refused(503, "overloaded", **{"retry-after": "1"})
        return text_of(number)

    batch_id = await world.batch(owner, many)
    async with gateway(owner, key_hash, answer) as served, working(runner_of(world, served)):

        async def begun() -> bool:
            return (await batches.find(world.connection, owner, batch_id)).request_counts.completed == 10

        await eventually(begun)
        assert (await batches.cancel(world.connection, owner, batch_id)).status is BatchStatus.CANCELLING
        assert (await batches.cancel(world.connection, owner, batch_id)).status in CANCEL_ASKED
        batch = await world.ended(owner, batch_id)
        await world.check(owner, served, batch, many)
    assert batch.status is BatchStatus.CANCELLED
    assert (batch.request_counts.completed, batch.request_counts.failed) == (10, 50)


async def test_a_line_that_ends_after_its_batch_was_cancelled_is_a_result_and_billed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a response that the line had stored stayed with its tenant, who did not pay."""
    monkeypatch.setattr(leased, "KEEP_S", GUARD_S)  # a renewal would see the cancellation
    owner, key_hash = await world.tenant()
    asked_for, answered = asyncio.Event(), asyncio.Event()
    batch_id = await world.batch(owner, 1)

    async def answer(_number: int) -> str:
        asked_for.set()
        await answered.wait()
        return "late"

    async with gateway(owner, key_hash, answer) as served, working(runner_of(world, served)):
        await asyncio.wait_for(asked_for.wait(), GUARD_S)
        await eventually(lambda: world.connection.fetchval(RENEWED, batch_id))  # also the one at the start
        await batches.cancel(world.connection, owner, batch_id)
        answered.set()
        batch = await world.ended(owner, batch_id)
        await world.check(owner, served, batch, 1)
    assert (batch.status, batch.request_counts.completed) == (BatchStatus.CANCELLED, 1)


async def test_a_running_batch_whose_file_is_lost_ends(world: World) -> None:
    owner, key_hash = await world.tenant()
    batch_id = await world.batch(owner, 3)
    held = await claims.claim(world.connection, 1)
    assert held is not None
    await claims.begin(world.connection, held, 3, "chat")
    await claims.release(world.connection, held)
    async with world.store.local((await batches.find(world.connection, owner, batch_id)).input_file_id) as path:
        path.unlink()
    async with gateway(owner, key_hash, text_of) as served, working(runner_of(world, served)):
        batch = await world.ended(owner, batch_id)
    assert (batch.status, batch.request_counts.completed) == (BatchStatus.COMPLETED, 0)
    assert batch.errors is not None
    assert [each.code for each in batch.errors.data] == ["input_file_not_found"]


@pytest.mark.parametrize("harm", ["gone", "torn"])
async def test_a_cancelled_batch_whose_file_is_lost_or_damaged_ends(world: World, harm: str) -> None:
    owner, key_hash = await world.tenant()
    batch_id = await world.batch(owner, 3)

    def answer(number: int) -> str:
        if number > 1:
            raise Refused(503, "overloaded", **{"retry-after": "1"})
        return text_of(number)

    async with gateway(owner, key_hash, answer) as served, working(runner_of(world, served)):

        async def begun() -> bool:
            return (await batches.find(world.connection, owner, batch_id)).request_counts.completed == 1

        await eventually(begun)
        found = await batches.find(world.connection, owner, batch_id)
        async with world.store.local(found.input_file_id) as path:
            text = path.read_bytes()
            path.unlink()
            if harm == "torn":
                path.write_bytes(text[:-5] + b"\xff")
        await batches.cancel(world.connection, owner, batch_id)
        batch = await world.ended(owner, batch_id)
    assert (batch.status, batch.request_counts.completed) == (BatchStatus.CANCELLED, 1)
    assert batch.errors is not None
    assert [each.code for each in batch.errors.data] == ["input_file_not_found"]
    assert len(await world.read(batch.output_file_id)) == 1


async def test_a_mistake_with_nul_ends_its_batch(world: World) -> None:
    """Fault: PostgreSQL refused the report, again and again."""
    owner, key_hash = await world.tenant()
    twice = [asked(1, custom_id="a\0b"), asked(2, custom_id="a\0b")]
    batch_id = await world.batch_of(owner, twice)
    async with gateway(owner, key_hash, text_of) as served, working(runner_of(world, served)):
        batch = await world.ended(owner, batch_id)
    assert batch.status is BatchStatus.FAILED
    assert batch.errors is not None
    assert "a\ufffdb" in batch.errors.data[0].message


async def test_a_batch_that_was_never_validated_fails_after_its_window(world: World) -> None:
    owner, key_hash = await world.tenant()
    batch_id = await world.batch(owner, 1)
    await world.connection.execute(EXPIRE, batch_id)
    async with gateway(owner, key_hash, text_of) as served, working(runner_of(world, served)):
        batch = await world.ended(owner, batch_id)
    assert batch.status is BatchStatus.FAILED
    assert batch.errors is not None
    assert batch.errors.data[0].code == "batch_expired"


async def test_a_file_with_mistakes_fails_with_their_lines(world: World) -> None:
    owner, key_hash = await world.tenant()
    wrong = [asked(1), asked(1), asked(2, url="/v1/completions"), {"custom_id": "x"}, asked(3, body={"model": "chta"})]
    batch_id = await world.batch_of(owner, wrong)
    async with gateway(owner, key_hash, text_of) as served, working(runner_of(world, served)):
        batch = await world.ended(owner, batch_id)
    assert batch.status is BatchStatus.FAILED
    assert batch.errors is not None
    assert [(each.line, each.code, each.param) for each in batch.errors.data] == [
        (2, "duplicate_custom_id", "custom_id"),
        (3, "invalid_url", "url"),
        (4, "missing_required_parameter", "method"),
        (5, "model_not_found", "body.model"),
    ]
    assert "Did you mean 'chat'?" in batch.errors.data[3].message
    assert not served.asked
    [listed] = await newest_batches(world.connection, UUID(owner.organization_id), 20)
    assert (listed.id, listed.status, listed.organization, listed.project) == (batch_id, "failed", "o", "p")
    shown = await whole_batch(world.connection, batch_id)
    assert shown is not None
    assert (shown["key_id"], shown["status"]) == (owner.key_id, "failed")
    assert await whole_batch(world.connection, "batch_none") is None


async def test_an_organization_holds_no_more_than_its_share_and_the_one_with_fewer_goes_first(world: World) -> None:
    one, _ = await world.tenant()
    other, _ = await world.tenant()
    first, second, third = [await world.batch(owner, 1) for owner in (one, one, one)]
    of_other = await world.batch(other, 1)
    taken = [await claims.claim(world.connection, 2) for _ in range(4)]
    assert [each and each.id for each in taken] == [first, of_other, second, None]
    left = await claims.claim(world.connection, 3)
    assert left is not None
    assert left.id == third


async def test_a_result_is_stored_and_billed_once_and_by_the_holder_of_the_lease_alone(world: World) -> None:
    owner, _ = await world.tenant()
    batch_id = await world.batch(owner, 2)
    connection, running = world.connection, (BatchStatus.IN_PROGRESS,)
    held = await claims.claim(connection, 1)
    assert held is not None
    assert held.id == batch_id
    assert await claims.claim(connection, 2) is None
    await claims.begin(connection, held, 2, "chat")
    async with lazy_pool(world.url, size=2, connect_timeout_s=5) as pool:
        ledger = Ledger(pool)

        async def store(by: Claim, line: int) -> None:
            run = closed_run(owner, mint_request(), Usage(prompt_tokens=7, completion_tokens=3))
            await claims.store(connection, ledger, by, running, [claims.Result(line, True, b"{}", run)])

        for _ in range(2):
            await store(held, 1)
        with pytest.raises(LeaseLost):
            await store(Claim(batch_id, uuid4()), 2)
        await batches.cancel(connection, owner, batch_id)
        with pytest.raises(LeaseLost):
            await store(held, 2)
    batch = await batches.find(connection, owner, batch_id)
    assert (batch.request_counts.completed, batch.usage.total_tokens) == (1, 10)
    [row] = await connection.fetch(LEDGER, owner.key_id)
    assert (row["prompt_tokens"], row["completion_tokens"]) == (7, 3)
    await connection.execute("DELETE FROM gateway.batch_results WHERE batch_id = $1", batch_id)
    await connection.execute("DELETE FROM gateway.batches WHERE id = $1", batch_id)


@pytest.mark.parametrize("bound", ["MAX_FILES", "ORGANIZATION_BYTES"])
async def test_uploads_beyond_the_room_of_an_organization_are_refused(
    world: World, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _ = await world.tenant()
    file_id = await world.file(owner, [asked(0)])
    monkeypatch.setattr(files, bound, 1)
    with pytest.raises(BodyTooLarge, match="the limit is 1"):
        await world.file(owner, [asked(0)])
    body = NewBatch(input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h")
    with pytest.raises(BodyTooLarge, match="the limit is 1"):  # fault: output filled the disk, batch by batch
        await batches.create(world.connection, owner, body)
    await files.begin(world.connection, owner, f"{owner.organization_id}-output", "batch_output", "out.jsonl", 9, 3600)


async def test_large_results_are_written_a_few_at_a_time(world: World) -> None:
    """Fault: 500 lines with vectors of 10 MB each were read at once, which no worker survives."""
    owner, _ = await world.tenant()
    batch_id = await world.batch(owner, 3)
    insert = "INSERT INTO gateway.batch_results (batch_id, line, ok, content) VALUES ($1, $2, true, $3)"
    large = b"x" * (claims.CONTENTS_BYTES * 3 // 4)
    await world.connection.executemany(insert, [(batch_id, line, large) for line in (1, 2, 3)])

    async def lines(after: int) -> list[int]:
        found = await claims.contents(world.connection, batch_id, claims.ResultFile.OUTPUT, after, 500)
        assert {content for _, content in found} <= {large}
        return [line for line, _ in found]

    assert [await lines(after) for after in (0, 2, 3)] == [[1, 2], [3], []]
    await world.connection.execute("DELETE FROM gateway.batch_results WHERE batch_id = $1", batch_id)
    await world.connection.execute("DELETE FROM gateway.batches WHERE id = $1", batch_id)


async def test_a_read_of_results_sorts_no_sizes_beyond_its_limit(world: World) -> None:
    """Fault: each read sorted all further results of the batch, on disk."""
    plan = await world.connection.fetch(f"EXPLAIN {claims._CONTENTS}", "batch_x", True, 0, 500, claims.CONTENTS_BYTES)
    steps = " ".join(row[0] for row in plan)
    assert 0 <= steps.find("WindowAgg") < steps.find("Limit")


class FailingStore(FolderStore):
    """Cannot delete one file, and stores none."""

    stuck = ""

    async def put(self, file_id: str, draft: Path) -> None:
        await super().put(file_id, draft)
        raise OSError("the disk failed")

    async def delete(self, file_id: str) -> None:
        if self.stuck in (file_id, "all"):
            raise OSError("the disk failed")
        await super().delete(file_id)


@pytest.mark.parametrize("stuck", ["", "all"], ids=["deleted at once", "deleted by a sweep"])
async def test_an_upload_that_the_store_refuses_takes_no_room(world: World, tmp_path: Path, stuck: str) -> None:
    owner, _ = await world.tenant()
    failing = FailingStore(tmp_path)
    failing.stuck = stuck
    api = BatchApi(world.url, None, failing)  # type: ignore[arg-type]
    await api.start()
    form = (
        b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n{}\r\n--x--\r\n'
    )

    async def body() -> AsyncIterator[bytes]:
        yield form

    with pytest.raises(ServiceError):
        await api.upload(
            KeyRecord(owner, Levels.of(owner.organization_id, ())), "multipart/form-data; boundary=x", body()
        )
    await api.stop()
    if stuck:
        await delete_left_over(world.url, FolderStore(tmp_path))
    held = "SELECT count(*) FROM gateway.files WHERE organization_id = $1"
    assert await world.connection.fetchval(held, owner.organization_id) == 0
    assert os.listdir(tmp_path) == [DRAFTS], "nothing without a row"  # noqa: PTH208


async def test_a_file_that_cannot_be_deleted_delays_no_others(world: World, tmp_path: Path) -> None:
    owner, _ = await world.tenant()
    names = [await world.file(owner, [asked(1)]) for _ in range(3)]
    await world.connection.execute("UPDATE gateway.files SET expires_at = now() WHERE id = ANY ($1)", names)
    failing = FailingStore(world.store._folder)
    found = "SELECT array_agg(id) FROM gateway.files WHERE id = ANY ($1)"
    failing.stuck = next(each for each in await files.left_over(world.connection) if each in names)
    await delete_left_over(world.url, failing)
    assert await world.connection.fetchval(found, names) == [failing.stuck]
    await delete_left_over(world.url, world.store)
    assert await world.connection.fetchval(found, names) is None


async def test_files_whose_time_is_over_are_deleted_with_their_contents(world: World, tmp_path: Path) -> None:
    owner, _ = await world.tenant()
    expired, kept = await world.file(owner, [asked(1)]), await world.file(owner, [asked(1)])
    needed = await world.batch(owner, 1)
    update = "UPDATE gateway.files SET expires_at = now() - interval '1 second' WHERE id = $1"
    await world.connection.execute(update, expired)
    of_batch = (await batches.find(world.connection, owner, needed)).input_file_id
    await world.connection.execute(update, of_batch)
    await delete_left_over(world.url, world.store)
    assert await world.read(kept)
    assert await world.read(of_batch)
    with pytest.raises(FileNotFoundError):
        await world.read(expired)
    assert not await world.connection.fetchval("SELECT count(*) FROM gateway.files WHERE id = $1", expired)
    await world.connection.execute("UPDATE gateway.batches SET status = 'failed' WHERE id = $1", needed)
