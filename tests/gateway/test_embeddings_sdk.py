"""OpenAI's SDK against a gateway process: vectors, what they cost, and models of another task."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.fakes.pooling import vector
from tests.gateway.slow_platform import SlowPlatform
from tests.gateway.test_usual_mistakes import said_of, sdk


async def test_the_sdk_embeds_and_the_ledger_has_it(platform: SlowPlatform) -> None:
    async with sdk(platform) as client:
        default = await client.embeddings.create(model="vectors", input=["one", "three"], user="somebody")
        floats = await client.embeddings.create(model="vectors", input="one", encoding_format="float")
        raw = await client.embeddings.with_raw_response.create(model="vectors", input="heron")
    assert [one.embedding for one in default.data] == [vector("one"), vector("three")]
    assert floats.data[0].embedding == vector("one")
    assert default.usage.prompt_tokens == default.usage.total_tokens == len("onethree")
    trace = await platform.trace(raw.headers["x-request-id"])
    assert (trace["endpoint"], trace["status"], trace["completion_tokens"]) == ("embeddings", 200, 0)
    usage = await platform.charge(raw.headers["x-request-id"])
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["billed"]) == (5, 0, True)


async def test_a_model_of_another_task_is_refused_by_name(platform: SlowPlatform) -> None:
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    async with sdk(platform) as client:
        said = await said_of(
            client.chat.completions.create(model="vectors", messages=messages),
            openai.BadRequestError,
            "wrong_endpoint",
        )
        assert said.startswith(
            "'vectors' is served by /v1/embeddings, not here. Models of this key for this endpoint: "
        )
        assert "wide" in said
        assert "ranks" not in said
        said = await said_of(
            client.embeddings.create(model="wide", input="hi"), openai.BadRequestError, "wrong_endpoint"
        )
        assert said == (
            "'wide' is served by /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages, not here. "
            "Models of this key for this endpoint: vectors."
        )
        ranked: Any = await client.post(
            "/rerank", cast_to=object, body={"model": "ranks", "query": "a b", "documents": ["a", "a b"]}
        )
        assert [one["index"] for one in ranked["results"]] == [1, 0]
        models = {model.id: getattr(model, "task", "text") async for model in client.models.list()}
        assert (models["vectors"], models["ranks"], models["wide"]) == ("embedding", "rerank", "text")


async def test_an_unknown_field_is_refused_by_name(platform: SlowPlatform) -> None:
    async with sdk(platform) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.embeddings.create(model="vectors", input="hi", extra_body={"truncate": True})
    assert caught.value.param == "truncate"
