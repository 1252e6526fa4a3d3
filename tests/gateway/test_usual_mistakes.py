"""What goes wrong first with OpenAI's SDK, over real HTTP: each refusal says what to do about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from gateway.auth.keys import ADMIN_PREFIX, mint
from tests.gateway.http.test_unknown_url import LIST
from tests.gateway.slow_platform import SlowPlatform

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]


@asynccontextmanager
async def sdk(platform: SlowPlatform, base: str = "/v1", key: str = "") -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=platform.url + base, api_key=key or platform.key, max_retries=0) as client:
        yield client


async def said_of(asked: Any, kind: type[openai.APIStatusError], code: str) -> str:
    """What the refusal tells a person."""
    with pytest.raises(kind) as caught:
        await asked
    assert caught.value.code == code
    body: Any = caught.value.body
    return str(body["message"])


@pytest.mark.parametrize("base", ["", "/v1/v1"])
async def test_a_wrong_base_url(platform: SlowPlatform, base: str) -> None:
    async with sdk(platform, base) as client:
        said = await said_of(
            client.chat.completions.create(model="wide", messages=MESSAGES), openai.NotFoundError, "not_found"
        )
    assert said == (
        f"Unknown request URL: POST {base}/chat/completions. Did you mean POST /v1/chat/completions? "
        "Set the client's base URL to this address followed by /v1."
    )


async def test_what_is_not_served_is_said_so(platform: SlowPlatform) -> None:
    async with sdk(platform) as client:
        for asked, what in (
            (client.images.generate(prompt="a heron"), "Images are"),
            (client.moderations.create(input="hi"), "Moderation is"),
        ):
            said = await said_of(asked, openai.NotFoundError, "not_found")
            assert said.endswith(f" {what} not served here. {LIST}")


async def test_a_key_of_a_provider(platform: SlowPlatform) -> None:
    async with sdk(platform, key="sk-or-v1-4f" + "x" * 40) as client:
        said = await said_of(client.models.list(), openai.AuthenticationError, "invalid_api_key")
    assert "which is not valid here. Keys of this deployment start with sk-slip-" in said
    assert "4f" not in said, "none of the secret is repeated"


async def test_a_key_of_another_deployment(platform: SlowPlatform) -> None:
    async with sdk(platform, key=mint(b"another pepper").secret) as client:
        said = await said_of(client.models.list(), openai.AuthenticationError, "invalid_api_key")
    assert said == ("This API key does not exist here. It may be another deployment's: check the key and the base URL.")


async def test_a_key_that_was_mistyped(platform: SlowPlatform) -> None:
    other = "a" if platform.key[-1] != "a" else "b"
    async with sdk(platform, key=platform.key[:-1] + other) as client:
        said = await said_of(client.models.list(), openai.AuthenticationError, "invalid_api_key")
    assert said == "This API key is mistyped: its checksum does not match. Copy the whole key again."


async def test_an_admin_key_for_inference_and_the_reverse(platform: SlowPlatform) -> None:
    async with sdk(platform, key=mint(platform.pepper, ADMIN_PREFIX).secret) as client:
        said = await said_of(client.models.list(), openai.AuthenticationError, "wrong_key_kind")
    assert said == (
        "This is an admin key, which is valid for /admin/v1 only; inference needs a project's key, which starts "
        "with sk-slip-."
    )
    async with sdk(platform, "/admin/v1") as client:
        asked = client.get("/organizations", cast_to=object)
        said = await said_of(asked, openai.AuthenticationError, "wrong_key_kind")
    assert said == (
        "This is an inference key, which is valid for /v1 only; the admin API needs one that starts with "
        "sk-slip-admin-."
    )


async def test_a_model_that_is_not_there(platform: SlowPlatform) -> None:
    async with sdk(platform) as client:
        said = await said_of(
            client.chat.completions.create(model="wider", messages=MESSAGES), openai.NotFoundError, "model_not_found"
        )
    assert said == "The model 'wider' does not exist. Did you mean 'wide'? Available: wide."


async def test_an_engine_that_serves_the_model_by_another_name(platform: SlowPlatform) -> None:
    """Its sentence names its own names, which are not the customer's: it is told whom to tell."""
    await platform.engine.control(status=404, message="The model 'wide' does not exist. Did you mean 'theirs'?")
    try:
        async with sdk(platform) as client:
            said = await said_of(
                client.chat.completions.create(model="wide", messages=MESSAGES),
                openai.InternalServerError,
                "engine_failed",
            )
    finally:
        await platform.engine.control(reset=True)
    assert said == (
        "The model is misconfigured here: its engine does not serve it. Tell the operator, with this answer's "
        "x-request-id."
    )


@pytest.mark.parametrize(
    ("asked", "param", "values"),
    [
        ({"messages": [{"role": "bot", "content": "hi"}]}, "messages[0].role",
         "one of: system, developer, user, assistant, tool"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "text": "x"}]}]}, "messages[0].content[0].type",
         "one of: text, image_url, refusal"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "one of: none, minimal, low, medium, high, xhigh, max"),
        ({"tool_choice": "always"}, "tool_choice", "one of: none, auto, required"),
        ({"service_tier": "scale"}, "service_tier", "one of: auto, default, flex, priority"),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "one of: text, json_object, json_schema"),
        ({"tools": [{"type": "plugin", "function": {"name": "f"}}]}, "tools[0].type", "function"),
        ({"modalities": ["audio"]}, "modalities[0]", "text"),
    ],
)  # fmt: skip
async def test_a_value_of_an_enumeration_is_answered_with_all_of_them(
    platform: SlowPlatform, asked: dict[str, Any], param: str, values: str
) -> None:
    async with sdk(platform) as client:
        body = {"model": "wide", "messages": MESSAGES, **asked}
        with pytest.raises(openai.BadRequestError) as caught:
            await client.post("/chat/completions", cast_to=object, body=body)
    error: Any = caught.value.body
    assert (error["code"], error["param"]) == ("invalid_value", param)
    assert error["message"].endswith(f" It must be {values}."), error["message"]
