"""OpenAI's SDK creates, continues, reads and deletes stored responses of a running gateway."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import openai
import pytest

from tests.databases import as_owner
from tests.gateway.responses.guide import run_example
from tests.gateway.slow_platform import SlowPlatform

HI = 'mock:{"tokens":2}'


@pytest.fixture
async def client(platform: SlowPlatform) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key=platform.key, max_retries=0) as made:
        yield made


def other(platform: SlowPlatform, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0)


async def _create(client: openai.AsyncOpenAI, text: Any = HI, **more: Any) -> Any:
    return await client.responses.create(model="wide", input=text, **more)


def _text(item: Any) -> str:
    text: str = item.content[0].text
    return text


async def _rows(platform: SlowPlatform, response_id: str) -> int:
    count: int = await platform.database.fetchval("SELECT count(*) FROM gateway.responses WHERE id = $1", response_id)
    return count


async def test_nothing_is_stored_unless_the_request_says_so(client: openai.AsyncOpenAI, platform: SlowPlatform) -> None:
    for more in ({}, {"store": False}):
        made = await _create(client, **more)
        assert (made.status, made.output_text, made.store) == ("completed", " t0 t1", False)
        assert not await _rows(platform, made.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError) as refused:
            await _create(client, previous_response_id=made.id)
        assert refused.value.param == "previous_response_id"
        assert made.id in refused.value.message


async def test_a_stored_response_is_read_listed_and_deleted(client: openai.AsyncOpenAI, platform: SlowPlatform) -> None:
    async with client.responses.stream(model="wide", input=HI, extra_body={"store": True}) as stream:
        kinds = [event.type async for event in stream]
        made = await stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert made.to_dict()["store"] is True
    got = await client.responses.retrieve(made.id)
    assert got.to_dict() == {**made.to_dict(), **got.to_dict()}
    assert got.output_text == made.output_text == " t0 t1"
    [item] = (await client.responses.input_items.list(made.id)).data
    assert item.to_dict()["content"] == [{"type": "input_text", "text": HI}]
    with pytest.raises(openai.BadRequestError, match="background"):
        await client.responses.cancel(made.id)
    await client.responses.delete(made.id)
    assert not await _rows(platform, made.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            await call(made.id)


async def test_input_items_have_pages(client: openai.AsyncOpenAI) -> None:
    texts = ["a", "b", HI]
    made = await _create(client, [{"role": "user", "content": text} for text in texts], store=True)
    page = await client.responses.input_items.list(made.id, order="asc", limit=2)
    assert [_text(item) for item in page.data] == texts[:2]
    assert page.has_more
    assert [_text(item) async for item in page] == texts
    newest = await client.responses.input_items.list(made.id, limit=1)
    assert _text(newest.data[0]) == HI
    for query in ({"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "x"}):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.input_items.list(made.id, extra_query=query)
        assert refused.value.param == next(iter(query))


async def test_a_conversation_goes_on_from_a_stored_response(
    client: openai.AsyncOpenAI, platform: SlowPlatform
) -> None:
    first = await _create(client, "What is 2 + 2? " * 20 + HI, store=True, instructions="Count. " * 30)
    second = await _create(client, HI, previous_response_id=first.id, store=True)
    third = await _create(client, HI, previous_response_id=second.id)
    assert second.previous_response_id == first.id
    spelled = await _create(
        client,
        [
            {"role": "user", "content": "What is 2 + 2? " * 20 + HI},
            *first.output,
            {"role": "user", "content": HI},
            *[item.to_dict() for item in second.output],
            {"role": "user", "content": HI},
        ],
    )
    assert third.usage == spelled.usage, "the history is the same, and instructions are of their own request only"
    assert first.usage.input_tokens > second.usage.input_tokens < third.usage.input_tokens
    counted = await client.responses.input_tokens.count(model="wide", input=HI, previous_response_id=second.id)
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens > (await client.responses.input_tokens.count(model="wide", input=HI)).input_tokens
    named = await _create(
        client, [{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": HI}]
    )
    assert named.status == "completed"
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match=first.id):
        await _create(client, previous_response_id=second.id)
    with pytest.raises(openai.NotFoundError) as refused:
        await _create(client, [{"type": "item_reference", "id": first.output[0].id}])
    assert refused.value.param == "input[0].id"


async def test_no_other_project_finds_it(client: openai.AsyncOpenAI, platform: SlowPlatform) -> None:
    made = await _create(client, store=True)
    stranger = other(platform, (await platform.add_key(new_organization=True)).secret)
    for call in (
        stranger.responses.retrieve,
        stranger.responses.delete,
        stranger.responses.cancel,
        stranger.responses.input_items.list,
    ):
        with pytest.raises(openai.NotFoundError):
            await call(made.id)
    with pytest.raises(openai.NotFoundError):
        await _create(stranger, previous_response_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await _create(stranger, [{"type": "item_reference", "id": made.output[0].id}])
    await stranger.close()
    assert await _rows(platform, made.id) == 1


@contextlib.asynccontextmanager
async def without_store(platform: SlowPlatform) -> AsyncIterator[None]:
    """The table is away; a database that is away altogether would take the keys with it."""
    owner = await asyncpg.connect(as_owner(platform.database_url))
    await owner.execute("ALTER TABLE gateway.responses RENAME TO responses_away")
    try:
        yield
    finally:
        await owner.execute("ALTER TABLE gateway.responses_away RENAME TO responses")
        await owner.close()


async def test_a_store_that_is_away_is_an_error_and_no_other_request_needs_it(
    client: openai.AsyncOpenAI, platform: SlowPlatform
) -> None:
    made = await _create(client, store=True)
    async with without_store(platform):
        assert (await _create(client)).status == "completed"
        for attempt in (
            _create(client, previous_response_id=made.id),
            _create(client, store=True),
            client.responses.retrieve(made.id),
        ):
            with pytest.raises(openai.InternalServerError) as refused:
                await attempt
            assert (refused.value.status_code, refused.value.code) == (503, "response_store_unavailable")
        events = [event async for event in await _create(client, store=True, stream=True)]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.type == "response_store_unavailable"
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(numbers)))
    assert not [event for event in events if event.type == "response.completed"]
    assert not await _rows(platform, events[-1].response.id)


async def test_calls_go_round(client: openai.AsyncOpenAI, platform: SlowPlatform) -> None:
    tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}]
    made = await _create(client, r'mock:{"tokens":2,"tool":"look","texts":["\u007b","\u007d"]}', tools=tools)
    [called] = made.output
    assert (called.type, called.name, called.arguments) == ("function_call", "look", "{}")
    result = {"type": "function_call_output", "call_id": called.call_id, "output": "seen"}
    again = await _create(client, [{"role": "user", "content": HI}, called, result], tools=tools)
    assert again.output_text == " t0 t1"


async def test_a_response_is_metered_like_any_other(client: openai.AsyncOpenAI, platform: SlowPlatform) -> None:
    raw = await client.responses.with_raw_response.create(model="wide", input=HI)
    usage = raw.parse().usage
    row = await platform.charge(raw.headers["x-request-id"])
    assert usage is not None
    assert (row["endpoint"], row["prompt_tokens"], row["completion_tokens"]) == (
        "responses",
        usage.input_tokens,
        usage.output_tokens,
    )
    assert raw.headers["x-ratelimit-limit-requests"]


async def test_the_guides_example_runs(platform: SlowPlatform, capsys: pytest.CaptureFixture[str]) -> None:
    await run_example(
        "responses.md",
        ("http://127.0.0.1:8000", platform.url),
        ("sk-slip-…", platform.key),
        ("smollm2-135m-instruct", "wide"),
        ("Count to three.", HI.replace('"', '\\"')),
    )
    assert "t0 t1" in capsys.readouterr().out
