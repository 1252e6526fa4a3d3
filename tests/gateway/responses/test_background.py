"""Responses in the background by the OpenAI SDK, through a real gateway, router and engine; a runner as the worker has
it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.errors import RateLimited, RevokedKey
from contracts.generation import Caller
from control.deferred import gateway_client, leases
from control.deferred import runner as leased
from control.deferred.leases import LeaseLost
from control.responses import runner as module
from control.responses import transitions
from control.responses.metrics import ResponseMetrics
from control.responses.runner import ResponseRunner
from gateway.http.client_connection import SCOPE_KEY
from gateway.responses import event_streams, streaming
from gateway.responses.background import MAX_UNFINISHED
from gateway.responses.event_streams import HELD_BYTES, LOOK_BYTES, MAX, MAX_EACH, EventStreams
from gateway.responses.reached import MAX_EACH as MAX_CONNECTIONS_EACH
from gateway.responses.reached import StorePool
from gateway.responses.store import ResponseStore
from gateway.responses.streaming import streamed
from gateway.wire.responses.events import event_of
from storage.engine import close, lazy_pool
from tests.control.killable import working
from tests.examples import examples
from tests.gateway.responses.guide import run_example
from tests.gateway.served import served
from tests.gateway.slow_platform import SlowPlatform
from tests.waiting import eventually

HI = 'mock:{"tokens":2}'
LONG = 'mock:{"tokens":2,"ttft_s":600}'
BILLS = """
SELECT usage.request_id, usage.billed, usage.purpose, usage.price_percent, usage.prompt_tokens, usage.completion_tokens,
       traces.service_class
  FROM gateway.usage_events AS usage JOIN gateway.request_traces AS traces USING (request_id)
 WHERE traces.client_request_id = $1 AND (usage.billed OR usage.gateway_id <> 'responses') ORDER BY usage.attempt
"""
ERROR = "SELECT convert_from(response, 'utf8')::jsonb #>> '{error,message}' FROM gateway.responses WHERE id = $1"
LIMIT = """
UPDATE gateway.limits SET {} FROM gateway.api_keys WHERE subject_id = api_keys.id AND hash = $1
"""
REFUSED = "SELECT count(*) FROM gateway.request_traces WHERE client_request_id = ANY($1::text[]) AND status = 429"
OWNER = "SELECT organization_id::text, project_id::text FROM gateway.responses WHERE id = $1"
FAILURES = "SELECT failures FROM gateway.background_responses WHERE id = $1"
PUT_BACK = "SELECT lease_until IS NOT NULL AND lease_id IS NULL FROM gateway.background_responses WHERE id = $1"
FORGET = "DELETE FROM gateway.background_responses"
HOLD = "UPDATE gateway.background_responses SET lease_until = now() + interval '1 hour' WHERE id = $1"
# those of `FILL` have no key, and stay held: a worker could not run them
FREE = """
UPDATE gateway.background_responses SET lease_until = now() - interval '1 second'
 WHERE key_id IN (SELECT id FROM gateway.api_keys)
"""
TAKE_OVER = """
UPDATE gateway.background_responses SET lease_id = NULL, lease_until = now() - interval '1 second' WHERE id = $1
"""
ADD_EVENTS = "INSERT INTO gateway.response_events (response_id, first, next, events) VALUES ($1, $2, $3, $4)"
SUSPECT = "UPDATE gateway.background_responses SET failures = 2 WHERE id = ANY($1::text[])"
RUNS = "SELECT id FROM gateway.background_responses WHERE id = ANY($1::text[]) AND lease_until > now() LIMIT 1"
RUNNING = "SELECT count(*) FROM gateway.background_responses WHERE id = ANY($1::text[]) AND lease_until > now()"
FILL = """
WITH made AS (
    INSERT INTO gateway.responses (organization_id, project_id, id, input, response, size_bytes, status)
    SELECT organization_id, project_id, 'resp_fill' || number, '[]', '{}', 4, 'queued'
      FROM gateway.responses, generate_series(2, $2) AS number WHERE id = $1 RETURNING id, organization_id)
INSERT INTO gateway.background_responses (id, organization_id, key_id, request, lease_until)
SELECT id, organization_id, gen_random_uuid(), '{}', now() + interval '1 day' FROM made
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed runs are repeated, and new responses found, at once."""
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    monkeypatch.setattr(leased, "IDLE_S", 0.05)


@pytest.fixture
async def client(platform: SlowPlatform) -> AsyncIterator[openai.AsyncOpenAI]:
    await platform.database.execute(FORGET)  # no worker of this test runs what another test left
    key = (await platform.add_key(new_organization=True)).secret
    async with openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0) as made:
        yield made


class Killable(ResponseRunner):
    """Stands still for ever, as a process that was killed, before or after its step of this number, or after this
    one."""

    last: Any = None
    last_step: float = float("inf")
    before = True
    steps = 0

    async def _once(self, step: Any, *values: Any) -> Any:
        if step in (self.leases.renew, transitions.by_status, transitions.forget_events):
            return await super()._once(step, *values)
        self.steps += 1
        if self.dead.is_set() and step in (transitions.put_back, transitions.end):
            raise ConnectionError  # a killed process gives nothing back, and stores nothing
        if self.before and self.steps >= self.last_step:
            await self.die()
        done = await super()._once(step, *values)
        if self.steps >= self.last_step or step == self.last:
            await self.die()
        return done

    async def die(self) -> None:
        self.dead.set()
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise ConnectionError  # it is being stopped, and nobody would end a wait
        await asyncio.Event().wait()

    dead: asyncio.Event


def runner_of(platform: SlowPlatform) -> Killable:
    made = Killable(platform.database_url, platform.url, lambda: platform.pepper, ResponseMetrics(CollectorRegistry()))
    made.dead = asyncio.Event()
    return made


@pytest.fixture
async def due(platform: SlowPlatform) -> AsyncIterator[asyncio.Event]:
    """Set it, and the worker looks for responses."""
    async with working(runner_of(platform)) as due:
        yield due


async def create(client: openai.AsyncOpenAI, text: str = HI, **more: Any) -> Any:
    return await client.responses.create(model="wide", input=text, background=True, **more)


async def finished(client: openai.AsyncOpenAI, response_id: str, *statuses: str) -> Any:
    async def found() -> Any:
        response = await client.responses.retrieve(response_id)
        return response if response.status in (statuses or ("completed", "incomplete", "failed")) else None

    return await eventually(found)


async def bills(platform: SlowPlatform, response_id: str, count: int) -> list[Any]:
    async def found() -> Any:
        rows = await platform.database.fetch(BILLS, response_id)
        return rows if len(rows) >= count else None

    return await eventually(found) if count else await platform.database.fetch(BILLS, response_id)


async def test_it_is_queued_runs_once_and_is_billed_once(platform: SlowPlatform, client: openai.AsyncOpenAI) -> None:
    made = await create(client, instructions="Count.", metadata={"status": "queued"}, extra_body={"min_p": 0.1})
    assert (made.status, made.background, made.to_dict()["store"], made.output) == ("queued", True, True, [])
    assert (await client.responses.retrieve(made.id)).to_dict() == made.to_dict()
    for refused in (client.responses.create, client.responses.input_tokens.count):
        with pytest.raises(openai.ConflictError, match="status is 'queued'") as conflict:
            await refused(model="wide", input=HI, previous_response_id=made.id)
        assert conflict.value.param == "previous_response_id"
    async with working(runner_of(platform)):
        got = await finished(client, made.id)
    assert (got.status, got.output_text, got.created_at) == ("completed", " t0 t1", made.created_at)
    changed = {"status", "output", "usage", "completed_at"}
    assert {**got.to_dict(), **dict.fromkeys(changed)} == {**made.to_dict(), **dict.fromkeys(changed)}
    [item] = (await client.responses.input_items.list(made.id)).data
    assert item.id.startswith(f"msg_{made.id.removeprefix('resp_')}")
    follow = await client.responses.create(
        model="wide", input=[{"type": "item_reference", "id": got.output[0].id}, {"role": "user", "content": HI}]
    )
    assert follow.status == "completed"
    assert (await client.responses.create(model="wide", input=HI, previous_response_id=made.id)).status == "completed"
    run, bill = await bills(platform, made.id, 2)
    assert (run["billed"], run["purpose"], bill["billed"], bill["purpose"]) == (False, "batches", True, None)
    assert (bill["service_class"], bill["price_percent"]) == ("standard", 100)
    assert (bill["prompt_tokens"], bill["completion_tokens"]) == (got.usage.input_tokens, got.usage.output_tokens)
    assert (await client.responses.cancel(made.id)).to_dict() == got.to_dict(), "it has finished"


async def test_what_cannot_be_in_the_background(platform: SlowPlatform, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="Remove 'store' or 'background'") as refused:
        await create(client, store=False)
    assert refused.value.param == "store"
    with pytest.raises(openai.NotFoundError):
        await create(client, previous_response_id="resp_x")
    made = await create(client)
    await platform.database.execute(FILL, made.id, MAX_UNFINISHED)
    with pytest.raises(openai.RateLimitError, match=f"{MAX_UNFINISHED} unfinished background responses") as full:
        await create(client)
    assert full.value.response.headers["retry-after"] == "5"
    await client.responses.cancel(made.id)
    assert (await create(client)).status == "queued"


async def test_a_cancelled_or_deleted_one_stops_and_is_not_billed(
    platform: SlowPlatform, client: openai.AsyncOpenAI, due: asyncio.Event
) -> None:
    made = [await create(client, LONG) for _ in range(2)]
    due.set()
    for each in made:
        await finished(client, each.id, "in_progress")
    assert (await client.responses.cancel(made[0].id)).status == "cancelled"
    assert (await client.responses.cancel(made[0].id)).status == "cancelled"
    await client.responses.delete(made[1].id)
    for each in made:
        [run] = await bills(platform, each.id, 1)  # once the engine was stopped
        assert (run["billed"], run["purpose"]) == (False, "batches")
    assert (await client.responses.retrieve(made[0].id)).status == "cancelled"
    with pytest.raises(openai.ConflictError, match="Continue an earlier response"):
        await client.responses.create(model="wide", input=HI, previous_response_id=made[0].id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made[1].id)
    queued = await create(client)
    assert (await client.responses.cancel(queued.id)).status == "cancelled"
    assert not await platform.database.fetchval(
        "SELECT count(*) FROM gateway.background_responses WHERE id = $1", queued.id
    )
    live = await client.responses.create(model="wide", input=HI, store=True)
    with pytest.raises(openai.BadRequestError, match="'background': true"):
        await client.responses.cancel(live.id)


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_streamed_one_that_its_tenant_ends_is_billed_as_far_as_it_got(
    platform: SlowPlatform, client: openai.AsyncOpenAI, due: asyncio.Event, how: str
) -> None:
    """Fault: its client read the text, cancelled it before its end, and paid nothing."""
    stream = await create(client, 'mock:{"tokens":2000,"inter_token_s":0.05,"prompt_tokens":500}', stream=True)
    due.set()
    response_id, deltas = "", 0
    async for event in stream:
        response_id = event.response.id if event.type == "response.created" else response_id
        deltas += event.type == "response.output_text.delta"
        if deltas == 3:
            await getattr(client.responses, how)(response_id)
            break
    [bill] = await bills(platform, response_id, 1)
    assert (bill["billed"], bill["purpose"], bill["prompt_tokens"]) == (True, None, 500)
    assert 3 <= bill["completion_tokens"] < 2000


async def test_a_streamed_one_whose_conversation_was_deleted_fails_and_is_billed(
    platform: SlowPlatform, client: openai.AsyncOpenAI, due: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: its client had the whole text for nothing."""
    deleted, end = asyncio.Event(), transitions.end

    async def end_later(*values: Any) -> None:
        await deleted.wait()
        await end(*values)

    monkeypatch.setattr(transitions, "end", end_later)
    conversation = await client.conversations.create()
    stream = await create(client, 'mock:{"tokens":8,"inter_token_s":0.05}', stream=True, conversation=conversation.id)
    due.set()
    response_id, text, last = "", "", ""
    async for event in stream:
        last = event.type
        response_id = event.response.id if event.type == "response.created" else response_id
        if event.type == "response.output_text.delta" and not text:
            await client.conversations.delete(conversation.id)
            deleted.set()
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert (last, len(text.split())) == ("response.failed", 8)
    run, bill = await bills(platform, response_id, 2)
    assert (run["billed"], bill["billed"], bill["completion_tokens"]) == (False, True, 8)


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_whole_run_that_its_tenant_ends_before_it_is_stored_is_billed_once(
    platform: SlowPlatform, client: openai.AsyncOpenAI, due: asyncio.Event, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Fault: a renewal between the run's end and its bill noticed that the row was gone, and stopped the work."""
    whole, noticed, end, renew = asyncio.Event(), asyncio.Event(), transitions.end, transitions.LEASES.renew

    async def end_later(*values: Any) -> None:
        whole.set()
        await noticed.wait()
        await end(*values)

    async def renew_and_notice(*values: Any) -> None:
        try:
            await renew(*values)
        except LeaseLost:
            noticed.set()
            raise

    monkeypatch.setattr(transitions, "end", end_later)
    monkeypatch.setattr(transitions.LEASES, "renew", renew_and_notice)
    monkeypatch.setattr(leased, "KEEP_S", 0.01)
    stream = await create(client, stream=True)
    response_id = (await anext(stream)).response.id
    due.set()
    await whole.wait()
    await getattr(client.responses, how)(response_id)
    run, bill = await bills(platform, response_id, 2)
    assert (run["billed"], bill["billed"], bill["completion_tokens"]) == (False, True, 2)
    await stream.close()


@pytest.mark.parametrize("how", ["cancel", "delete", "retrieve"])
async def test_a_whole_run_whose_worker_stops_before_it_is_stored_is_billed_once(
    platform: SlowPlatform, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Fault: no worker repeats a run that its client has ended, so it was billed to nobody."""
    whole, end = asyncio.Event(), transitions.end

    async def end_when_stopped(*values: Any) -> None:
        if not whole.is_set():
            whole.set()
            await asyncio.Event().wait()
        await end(*values)

    monkeypatch.setattr(transitions, "end", end_when_stopped)
    stream = await create(client, stream=True)
    response_id = (await anext(stream)).response.id
    async with working(runner_of(platform)):
        await whole.wait()
        await getattr(client.responses, how)(response_id)
    run, bill = await bills(platform, response_id, 2)
    assert (run["billed"], bill["billed"], bill["completion_tokens"]) == (False, True, 2)
    await stream.close()


async def test_a_run_that_another_worker_repeated_is_not_billed_when_its_client_deletes_it(
    platform: SlowPlatform, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a worker that had lost the lease long ago took the missing row for its client's deletion."""
    whole, deleted, over, end = asyncio.Event(), asyncio.Event(), asyncio.Event(), transitions.end

    async def end_later(*values: Any) -> None:
        if whole.is_set():
            return await end(*values)
        whole.set()
        await deleted.wait()
        try:
            await end(*values)
        finally:
            over.set()

    monkeypatch.setattr(transitions, "end", end_later)
    stream = await create(client, stream=True)
    response_id = (await anext(stream)).response.id
    async with working(runner_of(platform)):
        await whole.wait()
        await platform.database.execute(TAKE_OVER, response_id)
        async with working(runner_of(platform)):
            await finished(client, response_id)
        await client.responses.delete(response_id)
        monkeypatch.setattr(leases, "LEASE_S", 0.0)
        deleted.set()
        await over.wait()
    assert [row["billed"] for row in await bills(platform, response_id, 3)].count(True) == 1
    await stream.close()


async def seen(stream: Any) -> list[Any]:
    """All events of a stream, whose numbers have no gap."""
    events = [event async for event in stream]
    numbers = [event.sequence_number for event in events if event.type != "error"]
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))] if numbers else True
    return events


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


async def resumed(client: openai.AsyncOpenAI, response_id: str, **more: Any) -> Any:
    return await client.responses.retrieve(response_id, stream=True, **more)


async def test_a_stream_is_left_resumed_and_replayed(
    platform: SlowPlatform, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await create(client, stream=True)
    first = [await anext(stream), await anext(stream)]
    assert [(event.type, event.response.status) for event in first] == [
        ("response.created", "queued"),
        ("response.queued", "queued"),
    ]
    response_id = first[0].response.id
    await stream.response.aclose()
    plain = await create(client)
    async with working(runner_of(platform)):
        rest = await seen(await resumed(client, response_id, starting_after=0))
        whole = await seen(await resumed(client, plain.id))
    for events, kinds in ((first[:1] + rest, 3), (whole, 2)):
        last = events[-1]
        assert (last.type, last.response.status, text_of(events)) == ("response.completed", "completed", " t0 t1")
        assert last.response.to_dict() == (await client.responses.retrieve(last.response.id)).to_dict()
        assert {event.response.created_at for event in events if hasattr(event, "response")} == {
            last.response.created_at
        }
        assert [event.type for event in events[:kinds]].count("response.created") == 1
    for after in range(len(rest) + 1):
        again = await seen(await resumed(client, response_id, starting_after=after))
        assert [event.to_dict() for event in again] == [event.to_dict() for event in rest[after:]]
    [beyond] = await seen(await resumed(client, response_id, starting_after=len(rest) + 1))
    assert (beyond.type, beyond.code) == ("error", "starting_after_beyond_end")
    stranger = client.with_options(api_key=(await platform.add_key(new_organization=True)).secret)
    with pytest.raises(openai.NotFoundError):
        await resumed(stranger, response_id)
    for query in ({"stream": "yes"}, {"starting_after": "1"}, {"stream": "true", "starting_after": "-1"}):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.retrieve(response_id, extra_query=query)
        assert refused.value.param == [*query][-1]
    [run, bill] = await bills(platform, response_id, 2)
    assert (run["billed"], bill["billed"]) == (False, True)
    monkeypatch.setattr(transitions, "EVENTS_S", 0)
    await transitions.forget_events(platform.database)
    replayed = await seen(await resumed(client, response_id))
    assert (replayed[-1].to_dict()["response"], text_of(replayed)) == (rest[-1].to_dict()["response"], " t0 t1")
    [lost] = await seen(await resumed(client, response_id, starting_after=3))
    assert (lost.type, lost.code, lost.sequence_number) == ("error", "events_lost", 3)


async def test_a_stream_ends_with_its_response_or_its_run(platform: SlowPlatform, client: openai.AsyncOpenAI) -> None:
    """By a cancellation; by a deletion; by a failure; and by the loss of the run whose events the client has."""
    made = [await create(client, LONG, stream=True) for _ in range(2)]
    ids = [(await anext(stream)).response.id for stream in made]
    await client.responses.cancel(ids[0])
    await client.responses.delete(ids[1])
    ends = [(await seen(stream))[-1] for stream in made]
    assert [(end.type, end.code) for end in ends] == [("error", "response_cancelled"), ("error", "response_deleted")]
    broken = await create(client, 'mock:{"tokens":9,"die_after_tokens":2}', stream=True)
    broken_id = (await anext(broken)).response.id
    stream = await create(client, stream=True)
    response_id = (await anext(stream)).response.id
    await platform.database.execute(HOLD, broken_id)
    runner = runner_of(platform)
    runner.last = transitions.record
    task = asyncio.create_task(runner.run(asyncio.Event(), asyncio.Event()))
    await runner.dead.wait()
    events = [await anext(stream), await anext(stream)]
    assert [event.type for event in events] == ["response.queued", "response.in_progress"]
    task.cancel()
    await asyncio.wait([task])
    await platform.database.execute(FREE)
    async with working(runner_of(platform)):
        lost = (await seen(stream))[-1]
        again = await seen(await resumed(client, response_id))
        await finished(client, broken_id)  # a stream of an earlier run would end with that run
        failed = (await seen(await resumed(client, broken_id)))[-1]
    assert (lost.type, lost.code) == ("error", "events_lost")
    assert again[0].type == "response.created"
    assert again[0].sequence_number > lost.sequence_number
    assert (again[-1].type, text_of(again)) == ("response.completed", " t0 t1")
    assert (failed.type, failed.response.error.code) == ("response.failed", "server_error")
    await broken.response.aclose()


async def nothing() -> None:
    pass


async def revoked() -> None:
    raise RevokedKey("This API key has been revoked.")


@pytest.fixture
async def stored(platform: SlowPlatform) -> AsyncIterator[StorePool]:
    pool = await lazy_pool(platform.database_url, size=4, connect_timeout_s=5.0, name="test")
    yield StorePool(pool)
    await close(pool, 5.0)


async def test_a_stream_that_cannot_go_on_says_how_to_resume_it(
    platform: SlowPlatform, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gateway stops; or the database is away; or its key is revoked."""
    response_id = (await anext(await create(client, stream=True))).response.id
    owner = Caller(key_id="", **await platform.database.fetchrow(OWNER, response_id))
    for code in ("stream_interrupted", "response_store_unavailable", "revoked_api_key"):
        pool = await lazy_pool(platform.database_url, size=1, connect_timeout_s=5.0, name="test")
        streams, stops = EventStreams(StorePool(pool)), asyncio.Event()
        check = nothing
        if code == "revoked_api_key":
            check = revoked
            monkeypatch.setattr(streaming, "BEAT_S", 0.0)
        events = streamed(streams, ResponseStore(StorePool(pool)), owner, response_id, None, stops.is_set, check)
        if code == "revoked_api_key":
            assert f'"sequence_number":0,"code":"{RevokedKey.code}"'.encode() in await anext(events)
        else:
            assert (await anext(events)).count(b"data: ") == 2
        if code == "stream_interrupted":
            stops.set()
        elif code == "response_store_unavailable":
            await close(pool, 5.0)
        if code != "revoked_api_key":
            assert f'"sequence_number":1,"code":"{code}"'.encode() in b"".join([event async for event in events])
        await events.aclose()
        await streams.stop()
        await close(pool, 5.0)
    await client.responses.cancel(response_id)


async def test_long_events_are_read_a_row_at_a_time_and_sent_in_pieces(
    platform: SlowPlatform, client: openai.AsyncOpenAI, stored: StorePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row here has two events: a stream after the first of them has the second."""
    response_id = (await anext(await create(client, stream=True))).response.id
    owner = Caller(key_id="", **await platform.database.fetchrow(OWNER, response_id))
    await client.responses.cancel(response_id)
    await platform.database.execute("DELETE FROM gateway.response_events WHERE response_id = $1", response_id)
    sizes = (60_000, 60_000, 90_000, LOOK_BYTES)
    events = [event_of("x", number, {"text": "x" * sizes[number // 2]}) for number in range(2 * len(sizes))]
    for first in range(0, len(events), 2):
        row = response_id, first, first + 2, b"".join(events[first : first + 2])
        await platform.database.execute(ADD_EVENTS, *row)
    streams = EventStreams(stored)
    for after, found_rows in ((-1, [True]), (0, [True]), (3, [False]), (6, [False])):
        [found] = await streams.look([(response_id, after)], owner.organization_id)
        assert [row.events is not None for row in found.rows] == found_rows, "at most LOOK_BYTES, or one row"
        parts = [
            part async for part in streamed(streams, ResponseStore(stored), owner, response_id, after, bool, nothing)
        ]
        assert max(map(len, parts)) <= streaming.PIECE_BYTES
        assert b"".join(parts[:-1]) == b"".join(events[after + 1 :])
        assert b"response_cancelled" in parts[-1]
    async with streams.held("a", HELD_BYTES), streams.held("b", HELD_BYTES):
        monkeypatch.setattr(event_streams, "HELD_WAIT_S", 0.0)
        with pytest.raises(RateLimited, match="bytes of unread events"):
            await streams.held("a", 1).__aenter__()


async def test_one_organization_never_takes_the_whole_pool(stored: StorePool) -> None:
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(MAX_CONNECTIONS_EACH):
            await opened.enter_async_context(stored.reached("a"))
        another = asyncio.create_task(opened.enter_async_context(stored.reached("a")))
        async with stored.reached("b") as connection:
            assert await connection.fetchval("SELECT 1") == 1
        assert not another.done()
        another.cancel()
        await asyncio.wait([another])


class SlowClient:
    """Reads a little before each look at it, for so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def full(self) -> bool:
        return self.looks > 0

    @property
    def unread_bytes(self) -> int:
        self.looks -= 1
        return 1_000 + self.looks

    async def drained(self) -> None:
        await asyncio.Event().wait()


async def test_a_client_that_reads_slowly_is_served_and_one_that_reads_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "BEAT_S", 0.0)
    slow: Any = SlowClient(20)
    await streaming._read(slow)
    monkeypatch.setattr(streaming, "BEAT_S", 0.1)
    no_pool: Any = None  # which it does not use here
    streams = EventStreams(no_pool)
    left = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        with streams.counted("a"):
            try:
                while True:
                    yield b"x" * streaming.PIECE_BYTES
            finally:
                left.set()

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        connection = scope[SCOPE_KEY]
        connection.start(200, [])
        events: Any = endless()
        await streaming.send(connection, events)

    async with served(app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readexactly(1)
        assert streams._open["a"] == 1
        await left.wait()
        with contextlib.suppress(ConnectionError):
            got = b""
            while part := await reader.read(1 << 20):
                got = (got + part)[-8:]
            assert not got.endswith(b"0\r\n\r\n"), "it must not look whole"
        writer.close()
    assert not streams._open


async def test_responses_that_failed_twice_leave_a_workers_places_to_others(
    platform: SlowPlatform, client: openai.AsyncOpenAI
) -> None:
    """They run one after the other."""
    suspects = [(await create(client, LONG)).id for _ in range(3)]
    await platform.database.execute(SUSPECT, suspects)
    others = client.with_options(api_key=(await platform.add_key(new_organization=True)).secret)
    runner = runner_of(platform)
    runner.at_once = 2
    async with working(runner) as due:
        for _ in suspects:
            await eventually(lambda: platform.database.fetchval(RUNNING, suspects))
            fresh = await create(others)
            due.set()
            assert (await finished(others, fresh.id)).status == "completed"
            assert await platform.database.fetchval(RUNNING, suspects) == 1
            await client.responses.cancel(await platform.database.fetchval(RUNS, suspects))
            due.set()


def test_open_streams_are_bounded() -> None:
    no_pool: Any = None  # which it does not use here
    streams = EventStreams(no_pool)
    with contextlib.ExitStack() as opened:
        for _ in range(MAX_EACH):
            opened.enter_context(streams.counted("a"))
        streams.require_room("b")
        with pytest.raises(RateLimited, match=f"organization has {MAX_EACH}"):
            streams.require_room("a")
        for number in range(MAX - MAX_EACH):
            opened.enter_context(streams.counted(f"other {number}"))
        with pytest.raises(RateLimited, match=f"gateway has {MAX}"):
            streams.require_room("b")
    streams.require_room("a")


async def test_a_run_without_an_answer_is_repeated_a_few_times(
    platform: SlowPlatform, client: openai.AsyncOpenAI
) -> None:
    """One that its worker gives up, as it stops, does not count; nor does a gateway that takes no connection."""
    made = await create(client)
    runs = 0

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal runs
        await reader.readuntil(b"\r\n\r\n")
        runs += 1
        if runs == 1:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(break_off, "127.0.0.1")
    runner = runner_of(platform)
    runner._url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with working(runner):
            await eventually(lambda: runs)
        assert await platform.database.fetchval(FAILURES, made.id) == 0
        async with working(runner):
            got = await finished(client, made.id)
    assert (got.status, got.error.to_dict()["type"], runs) == ("failed", "response_lost", 1 + gateway_client.MAX_TRIES)
    away = await create(client)
    async with working(runner):
        await eventually(lambda: platform.database.fetchval(PUT_BACK, away.id))
    assert await platform.database.fetchval(FAILURES, away.id) == 0


async def test_what_fails_says_why_and_is_not_billed(
    platform: SlowPlatform, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that breaks off each time; a key that is revoked while the response is queued; a window that ends."""
    broken = await create(client, 'mock:{"tokens":9,"die_after_tokens":2}')
    async with working(runner_of(platform)):
        got = await finished(client, broken.id)
        assert (got.status, got.error.code, got.output, got.usage) == ("failed", "server_error", [], None)
    runs = await bills(platform, broken.id, gateway_client.MAX_TRIES)
    assert not any(run["billed"] for run in runs)
    key = await platform.add_key(new_organization=True)
    theirs = client.with_options(api_key=key.secret)
    revoked = await create(theirs)
    await platform.database.execute("UPDATE gateway.api_keys SET revoked_at = now() WHERE hash = $1", key.hash)

    async def heard() -> bool:
        """Whether the gateway knows: a busy machine announces the revocation late, and the run would be served."""
        try:
            await theirs.responses.retrieve(revoked.id)
        except openai.AuthenticationError:
            return True
        return False

    await eventually(heard)
    async with working(runner_of(platform)):

        async def ended() -> Any:
            return await platform.database.fetchval(ERROR, revoked.id)

        assert await eventually(ended) == "This API key has been revoked."
    late = await create(client)
    monkeypatch.setattr(transitions, "WINDOW_S", 0)
    async with working(runner_of(platform)):
        got = await finished(client, late.id)
    assert (got.status, got.error.to_dict()["type"]) == ("failed", "response_expired")
    assert not await bills(platform, late.id, 0)


async def test_its_keys_limits_hold_when_it_runs(platform: SlowPlatform, client: openai.AsyncOpenAI) -> None:
    key = await platform.add_key(new_organization=True)
    theirs = client.with_options(api_key=key.secret)
    await platform.database.execute(LIMIT.format("max_concurrency = 1"), key.hash)
    made = [(await create(theirs, LONG)).id for _ in range(2)]
    async with working(runner_of(platform)):
        await eventually(lambda: platform.database.fetchval(REFUSED, made))
        assert [(await theirs.responses.retrieve(each)).status for each in made] == ["in_progress"] * 2
        for each in made:
            await theirs.responses.cancel(each)
        await platform.database.execute(LIMIT.format("max_prompt_tokens = 1"), key.hash)
        got = await finished(theirs, (await create(theirs)).id)
    assert (got.status, got.error.code) == ("failed", "rate_limit_exceeded")
    assert got.error.to_dict()["type"] == "request_exceeds_limit"


async def test_a_conversation_grows_by_it_and_waits_for_it(platform: SlowPlatform, client: openai.AsyncOpenAI) -> None:
    conversation, gone = [await client.conversations.create() for _ in range(2)]
    made = await create(client, conversation=conversation.id)
    lost = await create(client, conversation=gone.id)
    for attempt in (
        create(client, conversation=conversation.id),
        client.responses.create(model="wide", input=HI, conversation=conversation.id),
    ):
        with pytest.raises(openai.ConflictError, match=made.id) as waits:
            await attempt
        assert waits.value.param == "conversation"
    await client.conversations.delete(gone.id)
    async with working(runner_of(platform)):
        got = await finished(client, made.id)
        failed = await finished(client, lost.id)
    assert got.status == "completed"
    items = (await client.conversations.items.list(conversation.id, order="asc")).data
    assert [item.to_dict()["role"] for item in items] == ["user", "assistant"]
    assert (failed.status, failed.error.code) == ("failed", "invalid_prompt")
    assert gone.id in failed.error.message
    assert (await client.responses.create(model="wide", input=HI, conversation=conversation.id)).status == "completed"


async def test_the_guides_example_runs(
    platform: SlowPlatform, client: openai.AsyncOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    async with working(runner_of(platform)):
        await run_example(
            "background-responses.md",
            ("http://127.0.0.1:8000", platform.url),
            ("sk-slip-…", client.api_key),
            ("smollm2-135m-instruct", "wide"),
            ("Write a long story.", HI.replace('"', '\\"')),
            ("sleep(2)", "sleep(0.01)"),
        )
    assert capsys.readouterr().out == "completed  t0 t1\n t0 t1"


@given(st.lists(st.tuples(st.integers(1, 7), st.booleans()), max_size=3), st.booleans())
@examples(40, gate=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_kills_between_any_two_steps_end_in_one_result_and_one_bill(
    platform: SlowPlatform, client: openai.AsyncOpenAI, kills: list[tuple[int, bool]], streamed: bool
) -> None:
    """A client that streams it sees one run: to its end, or until it is lost."""
    if streamed:
        stream = await create(client, stream=True)
        made = (await anext(stream)).response
        watching = asyncio.create_task(seen(stream))
    else:
        made = await create(client)
    for last_step, before in kills:
        runner = runner_of(platform)
        runner.last_step, runner.before = last_step, before
        task = asyncio.create_task(runner.run(asyncio.Event(), asyncio.Event()))
        over = asyncio.create_task(finished(client, made.id))
        waits = [task, over, asyncio.create_task(runner.dead.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        await asyncio.wait(waits)
        await platform.database.execute(FREE)
    async with working(runner_of(platform)):
        got = await finished(client, made.id)
    assert (got.status, got.output_text) == ("completed", " t0 t1")

    async def billed() -> int:  # lost runs have rows too
        return [row["billed"] for row in await bills(platform, made.id, 0)].count(True)

    assert await eventually(billed) == 1
    if streamed:
        events = await watching
        assert events[-1].type == "error" or (events[-1].type, text_of(events)) == ("response.completed", " t0 t1")
        assert events[-1].type != "error" or events[-1].code == "events_lost"
