"""Engines get what we built, never what a client sent; and whatever an engine's bytes look like, clients get events."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from engines.drivers.parameters import SGLANG
from tests.deployment import Deployment
from tests.fakes.chunks import answer_text
from tests.fakes.process import FakeEngineProcess
from tests.gateway.wire.test_decode import ENGINE_PRIVATE

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "x"},
}
BUILT = {
    "model", "messages", "stream", "stream_options", "max_tokens", "seed", "stop", "rid", "cache_salt",
    "return_spec_tokens_details",
}  # fmt: skip
DRIVERS_OWN = {"stream_options", "rid", "cache_salt", "return_spec_tokens_details"}


async def recorded(engines: list[FakeEngineProcess]) -> list[dict[str, Any]]:
    return [record for engine in engines for record in await engine.recorded()]


async def test_every_private_field_is_refused_and_none_arrives(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    async with httpx.AsyncClient(base_url=faked.url, headers={"authorization": f"Bearer {faked.key}"}) as client:
        for name in (each for each in ENGINE_PRIVATE if each not in SGLANG):
            for path, prompt in (
                ("/v1/chat/completions", {"messages": MESSAGES}),
                ("/v1/completions", {"prompt": "x"}),
            ):
                answer = await client.post(path, json={"model": "fake", **prompt, name: 2})
                assert answer.status_code == 400
                assert answer.json()["error"]["param"] == name
    assert await recorded(fresh_engines) == []


async def test_what_its_engines_have_arrives(faked: Deployment, fresh_engines: list[FakeEngineProcess]) -> None:
    own = {"top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1, "chat_template_kwargs": {"enable_thinking": False}}
    async with httpx.AsyncClient(base_url=faked.url, headers={"authorization": f"Bearer {faked.key}"}) as client:
        answer = await client.post("/v1/chat/completions", json={"model": "fake", "messages": MESSAGES, **own})
        assert answer.status_code == 200, answer.text
    [record] = await recorded(fresh_engines)
    assert {name: record["body"].get(name) for name in own} == own
    assert set(record["body"]) <= BUILT | own.keys()


async def test_what_arrives_is_ours(
    fake_client: openai.AsyncOpenAI, faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    raw = await fake_client.chat.completions.with_raw_response.create(
        model="fake", messages=MESSAGES, max_tokens=3, seed=7, stop=["END"], user="someone", metadata={"a": "b"},
        extra_headers={"x-request-id": "mine", "x-custom": "1", "cookie": "a=b"},
    )  # fmt: skip
    [record] = await recorded(fresh_engines)
    body, headers = record["body"], record["headers"]
    assert set(body) <= BUILT
    assert (body["seed"], body["max_tokens"], body["messages"]) == (7, 3, MESSAGES)
    assert body["rid"] == raw.headers["x-request-id"] != "mine"
    assert len(body["cache_salt"]) == 32
    assert set(headers) == {"host", "authorization", "x-slipstream-sender", "content-type", "content-length"}
    assert faked.key not in str(record)
    assert "(tenant)" not in str(headers)


async def test_what_the_client_did_not_send_is_not_sent(
    fake_client: openai.AsyncOpenAI, fresh_engines: list[FakeEngineProcess]
) -> None:
    """The engine's own sampling defaults stay in force; only the reserved output limit is ours."""
    await fake_client.chat.completions.create(model="fake", messages=MESSAGES)
    await fake_client.completions.create(model="fake", prompt="x")
    for record in await recorded(fresh_engines):
        prompt = "messages" if record["path"] == "/v1/chat/completions" else "prompt"
        assert set(record["body"]) == {"model", prompt, "max_tokens", "stream"} | DRIVERS_OWN


async def test_what_the_client_did_send_is_sent(
    fake_client: openai.AsyncOpenAI, fresh_engines: list[FakeEngineProcess]
) -> None:
    """Also a value that is OpenAI's default: an engine's may be another."""
    given: dict[str, Any] = {
        "temperature": 1.0, "top_p": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "seed": 0, "n": 2,
    }  # fmt: skip
    await fake_client.chat.completions.create(model="fake", messages=MESSAGES, **given)
    [record] = await recorded(fresh_engines)
    assert {name: record["body"].get(name) for name in given} == given


async def test_salts_differ_between_tenants_and_hold_within_one(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    keys = [faked.key, await faked.make_key(), await faked.make_key("--organization", "somebody-else")]
    for key in keys:
        async with openai.AsyncOpenAI(base_url=f"{faked.url}/v1", api_key=key, max_retries=0) as client:
            await client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=1)
    by_time = sorted(await recorded(fresh_engines), key=lambda record: str(record["rid"]))
    salts = [record["body"]["cache_salt"] for record in by_time]
    assert len(salts) == 3
    assert len(set(salts)) == 2


@pytest.mark.parametrize(("split", "role_first", "include_usage"), [("byte", True, True), ("joined", False, False)])
async def test_however_the_engine_writes_clients_get_the_same_events(
    fake_client: openai.AsyncOpenAI,
    fresh_engines: list[FakeEngineProcess],
    split: str,
    role_first: bool,
    include_usage: bool,
) -> None:
    for engine in fresh_engines:
        await engine.control(split=split, role_first=role_first, tokens=6)
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    create: Any = fake_client.chat.completions.create
    stream = await create(model="fake", messages=MESSAGES, max_tokens=50, stream=True, **options)
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == answer_text(6)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert len([chunk for chunk in chunks if chunk.choices]) == 6 + role_first + 1
    assert (chunks[-1].usage is not None) is include_usage
    if include_usage:
        assert chunks[-1].usage.completion_tokens == 6
