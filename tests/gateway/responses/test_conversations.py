"""OpenAI's SDK holds conversations that a running gateway stores."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import openai
import pytest

from gateway.auth.keys import hash_of
from tests.gateway.slow_platform import SlowPlatform

HI = 'mock:{"tokens":2}'
MOVE = """
UPDATE gateway.projects
   SET name = 'other', organization_id = (SELECT organization_id FROM gateway.responses WHERE id = $2)
 WHERE id = (SELECT project_id FROM gateway.api_keys WHERE hash = $1)
"""


def client_of(platform: SlowPlatform, key: str = "") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key=key or platform.key, max_retries=0)


async def texts(client: openai.AsyncOpenAI, conversation_id: str) -> list[str]:
    items: list[Any] = [item async for item in client.conversations.items.list(conversation_id, order="asc", limit=2)]
    return [item.content[0].text for item in items]


async def test_a_response_begins_with_its_conversation_and_adds_to_it(platform: SlowPlatform) -> None:
    async with client_of(platform) as client:
        made = await client.conversations.create(
            metadata={"a": "b"},
            items=[{"role": "user", "content": "remember this"}, {"role": "assistant", "content": "yes"}],
        )
        assert (await client.conversations.retrieve(made.id)).to_dict() == made.to_dict()
        first: Any = await client.responses.create(
            model="wide", input=HI, conversation=made.id, instructions="Not kept."
        )
        assert first.conversation.id == made.id
        assert not first.to_dict()["store"]
        async with client.responses.stream(
            model="wide", input=HI, conversation={"id": made.id}, extra_body={"store": True}
        ) as stream:
            second = await stream.get_final_response()
        assert await texts(client, made.id) == ["remember this", "yes", HI, " t0 t1", HI, " t0 t1"]
        spelled: Any = await client.responses.create(
            model="wide",
            input=[
                {"role": "user", "content": "remember this"},
                {"role": "assistant", "content": "yes"},
                {"role": "user", "content": HI},
                {"role": "assistant", "content": " t0 t1"},
                {"role": "user", "content": HI},
            ],
        )
        assert second.usage == spelled.usage
        assert (await client.responses.retrieve(second.id)).output_text == " t0 t1"
        with pytest.raises(openai.BadRequestError, match="cannot be combined"):
            await client.responses.create(model="wide", input=HI, conversation=made.id, previous_response_id=second.id)


async def test_items_are_added_read_and_removed(platform: SlowPlatform) -> None:
    async with client_of(platform) as client:
        made = await client.conversations.create()
        added = await client.conversations.items.create(
            made.id, items=[{"role": "user", "content": text} for text in "ab"]
        )
        assert [item["content"][0]["text"] for item in added.to_dict()["data"]] == ["a", "b"]  # type: ignore[attr-defined]
        first = str(added.data[0].id)
        got: Any = await client.conversations.items.retrieve(first, conversation_id=made.id)
        assert got.content[0].text == "a"
        assert (await client.conversations.items.delete(first, conversation_id=made.id)).id == made.id
        assert await texts(client, made.id) == ["b"]
        for call in (client.conversations.items.retrieve, client.conversations.items.delete):
            with pytest.raises(openai.NotFoundError):
                await call(first, conversation_id=made.id)
        with pytest.raises(openai.BadRequestError) as refused:
            await client.conversations.items.create(made.id, items=[{"type": "item_reference", "id": first}])
        assert refused.value.param == "items[0].type"
        changed = await client.conversations.update(made.id, metadata={"c": "d"})
        assert changed.metadata == {"c": "d"}
        assert (await client.conversations.update(made.id, metadata=None)).metadata == {}
        assert (await client.conversations.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError) as missing:
            await client.responses.create(model="wide", input=HI, conversation=made.id)
        assert missing.value.param == "conversation"


async def test_no_other_project_finds_it(platform: SlowPlatform) -> None:
    stranger_key = (await platform.add_key(new_organization=True)).secret
    async with client_of(platform) as client, client_of(platform, stranger_key) as stranger:
        made = await client.conversations.create(items=[{"role": "user", "content": "mine"}])
        for attempt in (
            stranger.conversations.retrieve(made.id),
            stranger.conversations.update(made.id, metadata={}),
            stranger.conversations.delete(made.id),
            stranger.conversations.items.create(made.id, items=[{"role": "user", "content": "x"}]),
            stranger.responses.create(model="wide", input=HI, conversation=made.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await attempt
        with pytest.raises(openai.NotFoundError):
            await texts(stranger, made.id)
        assert await texts(client, made.id) == ["mine"]


async def test_a_response_in_the_background_of_another_project_is_not_named(platform: SlowPlatform) -> None:
    async with client_of(platform, (await platform.add_key(new_organization=True)).secret) as client:
        made = await client.conversations.create()
        waiting = await client.responses.create(model="wide", input=HI, conversation=made.id, background=True)
        theirs = client.with_options(api_key=(await platform.add_key(new_organization=True)).secret)
        await platform.database.execute(MOVE, hash_of(theirs.api_key, platform.pepper), waiting.id)
        with pytest.raises(openai.NotFoundError):
            await theirs.responses.create(model="wide", input=HI, conversation=made.id)
        await client.responses.cancel(waiting.id)


async def test_responses_at_once_each_add_all_of_theirs(platform: SlowPlatform) -> None:
    async with client_of(platform) as client:
        made = await client.conversations.create()
        await asyncio.gather(*(client.responses.create(model="wide", input=HI, conversation=made.id) for _ in range(4)))
        assert sorted(await texts(client, made.id)) == sorted([HI, " t0 t1"] * 4)
        row = await platform.database.fetchrow("SELECT items FROM gateway.conversations WHERE id = $1", made.id)
        assert row is not None
        assert row["items"] == 8


async def test_a_response_fails_with_its_conversation(platform: SlowPlatform) -> None:
    async with client_of(platform) as client:
        made = await client.conversations.create()
        slow = await client.responses.create(
            model="wide", input='mock:{"tokens":90000,"inter_token_s":0.02}', conversation=made.id, stream=True
        )
        kinds: list[str] = []
        with contextlib.suppress(openai.APIError):
            async for event in slow:
                if not kinds:
                    await client.conversations.delete(made.id)
                    await platform.engine.finish((await platform.engine.recorded())[-1]["rid"])
                kinds.append(event.type)
        assert kinds[-1] == "response.failed"
        assert "response.completed" not in kinds
