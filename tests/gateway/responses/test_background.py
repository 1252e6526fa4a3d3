"""Responses in the background by the OpenAI SDK, through a real gateway, router and engine; a runner as the worker has
it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from control.deferred import gateway_client
from control.deferred import runner as leased
from control.responses import runner as module
from control.responses import transitions
from control.responses.metrics import ResponseMetrics
from control.responses.runner import ResponseRunner
from gateway.responses.background import MOST_UNFINISHED
from tests.control.batches.test_runner import working
from tests.examples import examples
from tests.gateway.responses.guide import run_example
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
FREE = "UPDATE gateway.background_responses SET lease_until = now() - interval '1 second'"
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
    key = (await platform.add_key(new_organization=True)).secret
    async with openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0) as made:
        yield made


class Killable(ResponseRunner):
    """Stands still for ever, as a process that was killed, before or after its step of this number."""

    last_step: float = float("inf")
    before = True
    steps = 0

    async def _once(self, step: Any, *values: Any) -> Any:
        if step in (self.leases.renew, transitions.by_status):
            return await super()._once(step, *values)
        self.steps += 1
        if self.before and self.steps >= self.last_step:
            await self.die()
        done = await super()._once(step, *values)
        if self.steps >= self.last_step:
            await self.die()
        return done

    async def die(self) -> None:
        self.dead.set()
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
    refusals: tuple[dict[str, Any], ...] = ({"store": False}, {"stream": True})
    for more in refusals:
        with pytest.raises(openai.BadRequestError, match="leave 'background' out") as refused:
            await create(client, **more)
        assert refused.value.param == next(iter(more))
    with pytest.raises(openai.NotFoundError):
        await create(client, previous_response_id="resp_x")
    made = await create(client)
    await platform.database.execute(FILL, made.id, MOST_UNFINISHED)
    with pytest.raises(openai.RateLimitError, match=f"{MOST_UNFINISHED} responses in the background") as full:
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
    with pytest.raises(openai.ConflictError, match="Continue the response before it"):
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


async def test_what_fails_says_why_and_is_not_billed(
    platform: SlowPlatform, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that breaks off each time; a key that is revoked while the response is queued; a window that ends."""
    broken = await create(client, 'mock:{"tokens":9,"die_after_tokens":2}')
    async with working(runner_of(platform)):
        got = await finished(client, broken.id)
        assert (got.status, got.error.code, got.output, got.usage) == ("failed", "server_error", [], None)
    runs = await bills(platform, broken.id, gateway_client.MOST_TRIES)
    assert not any(run["billed"] for run in runs)
    key = await platform.add_key(new_organization=True)
    theirs = client.with_options(api_key=key.secret)
    revoked = await create(theirs)
    await platform.database.execute("UPDATE gateway.api_keys SET revoked_at = now() WHERE hash = $1", key.hash)
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
    assert "completed  t0 t1" in capsys.readouterr().out


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=3))
@examples(40, gate=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_kills_between_any_two_steps_end_in_one_result_and_one_bill(
    platform: SlowPlatform, client: openai.AsyncOpenAI, kills: list[tuple[int, bool]]
) -> None:
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
    rows = await bills(platform, made.id, 2)
    assert [row["billed"] for row in rows].count(True) == 1
