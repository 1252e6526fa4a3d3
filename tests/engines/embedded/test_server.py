"""Answers of an engine, asked with the `openai` package."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.engine_process import QUESTION
from tests.engines.embedded.peft_folder import write_adapter
from tests.engines.embedded.served import Served
from tests.engines.embedded.tiny import SHIPPED


async def ask(chat: openai.AsyncOpenAI, **asked: Any) -> Any:
    settings = {"model": "slipstream-chat", "messages": QUESTION, "temperature": 0, **asked}
    return await chat.chat.completions.create(**settings)


async def complete(code: openai.AsyncOpenAI, **asked: Any) -> Any:
    settings = {"model": "slipstream-code", "temperature": 0, **asked}
    return await code.completions.create(**settings)


async def test_a_chat_answer_whole(chat: openai.AsyncOpenAI) -> None:
    answer = await ask(chat)
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 8)  # the end token counts


async def test_a_chat_answer_streamed_is_the_same_and_ends_with_usage(chat: openai.AsyncOpenAI) -> None:
    chunks = [chunk async for chunk in await ask(chat, stream=True, stream_options={"include_usage": True})]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "The capital of France is Paris."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 8
    assert all(chunk.usage is None for chunk in chunks[:-1])
    running = await ask(chat, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [chunk.usage.completion_tokens async for chunk in running if chunk.usage]
    assert counts == sorted(counts)
    assert counts[-1] == 8
    assert len(counts) > 2


async def test_a_prompt_asked_again_is_reported_as_cached(code: openai.AsyncOpenAI) -> None:
    async def cached(salt: str) -> list[int]:
        running = {"include_usage": True, "continuous_usage_stats": True}
        stream = await complete(
            code, prompt=list(range(100, 164)), max_tokens=4, stream=True, stream_options=running,
            extra_body={"cache_salt": salt},
        )  # fmt: skip
        details = [chunk.usage.prompt_tokens_details async for chunk in stream if chunk.usage]
        return [found.cached_tokens or 0 for found in details if found]

    assert set(await cached("a")) == {0}
    assert set(await cached("a")) == {63}, "the last token is always computed"
    assert set(await cached("b")) == {0}


async def test_guesses_are_counted_and_a_request_can_refuse_them(
    code_engine: Served, code: openai.AsyncOpenAI, session: aiohttp.ClientSession
) -> None:
    async def drafts_after(speculation: bool) -> float:
        extra = {"speculation": speculation, "ignore_eos": True}
        await complete(code, prompt=[300, 301, 302] * 8, max_tokens=40, extra_body=extra)
        async with session.get(f"{code_engine.url}/metrics") as metrics:
            lines = (await metrics.text()).splitlines()
        (drafts,) = [line for line in lines if line.startswith("sglang:spec_drafts_total{")]
        return float(drafts.rpartition(" ")[2])

    before = await drafts_after(False)
    assert await drafts_after(False) == before
    assert await drafts_after(True) > before
    async with session.get(f"{code_engine.url}/server_info") as answer:
        assert (await answer.json())["internal_states"][0]["avg_spec_accept_length"] >= 1


async def test_a_gap_is_filled_by_the_models_template(code: openai.AsyncOpenAI) -> None:
    before, after = "import os\nimport ", "\n\ndef main():\n"
    ids = Tokenizer.load(SHIPPED / "slipstream-code").fill_ids(before, after)
    by_text = await complete(code, prompt=before, suffix=after, max_tokens=8)
    by_ids = await complete(code, prompt=ids, max_tokens=8)
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_text.usage.prompt_tokens == len(ids)


async def test_several_prompts_as_text_and_as_ids(code: openai.AsyncOpenAI) -> None:
    texts = await complete(code, prompt=["import ", "def "], max_tokens=4)
    assert [choice.index for choice in texts.choices] == [0, 1]
    assert texts.usage.completion_tokens == 8
    ids = await complete(code, prompt=[[5, 6, 7], [8]], max_tokens=4, n=2)
    assert len(ids.choices) == 4
    assert ids.choices[0].text == ids.choices[1].text
    assert ids.usage.prompt_tokens == 4


async def test_echo_gives_the_prompt_back(code: openai.AsyncOpenAI) -> None:
    answer = await complete(code, prompt="import os", echo=True, max_tokens=2)
    assert answer.choices[0].text.startswith("import os")


async def test_a_control_string_in_user_text_stays_text(chat: openai.AsyncOpenAI) -> None:
    plain = await ask(chat, max_tokens=1)
    messages = [{"role": "user", "content": "What is the capital of France?<|end|>"}]
    marked = await ask(chat, messages=messages, max_tokens=1)
    assert marked.usage.prompt_tokens > plain.usage.prompt_tokens + 1


async def test_an_adapter_answers_from_its_loading_to_its_unloading(
    chat_engine: Served, chat: openai.AsyncOpenAI, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    folder = write_adapter(tmp_path / "a", SHIPPED / "slipstream-chat", lora_alpha=200)

    async def post(path: str, body: Any, status: int) -> Any:
        async with session.post(f"{chat_engine.url}{path}", json=body) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()

    async def text(adapter: dict[str, str]) -> str:
        return str((await ask(chat, max_tokens=12, extra_body=adapter)).choices[0].message.content)

    plain, named = await text({}), {"lora_name": "lora-1", "lora_path": str(folder)}
    loaded = await post("/load_lora_adapter", named, 200)
    assert loaded["loaded_adapters"] == {"lora-1": str(folder)}
    assert (loaded["rank"], loaded["bytes"] > 0) == (4, True)
    assert "already loaded" in (await post("/load_lora_adapter", named, 400))["message"]
    nowhere = await post("/load_lora_adapter", {"lora_name": "lora-2", "lora_path": "/nowhere"}, 400)
    assert nowhere["param"] == "adapter_config.json"
    assert [card.id async for card in chat.models.list()] == ["slipstream-chat", "lora-1"]
    assert await text({"lora_path": "lora-1"}) != plain
    assert await text({}) == plain
    assert (await post("/unload_lora_adapter", {"lora_name": "lora-1"}, 200))["loaded_adapters"] == {}
    with pytest.raises(openai.NotFoundError, match="not loaded"):
        await text({"lora_path": "lora-1"})


async def test_a_request_outlives_the_unloading_of_its_adapter(
    chat_engine: Served, chat: openai.AsyncOpenAI, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    folder = write_adapter(tmp_path / "a", SHIPPED / "slipstream-chat")
    named = {"lora_name": "lora-leaves", "lora_path": str(folder)}
    async with session.post(f"{chat_engine.url}/load_lora_adapter", json=named) as answer:
        assert answer.status == 200
    shutil.rmtree(folder)
    adapter = {"lora_path": "lora-leaves"}
    stream = await ask(chat, extra_body=adapter, max_tokens=60, logit_bias={"5": 100}, stream=True)
    await anext(stream)

    async def unload() -> int:
        async with session.post(f"{chat_engine.url}/unload_lora_adapter", json={"lora_name": "lora-leaves"}) as answer:
            return answer.status

    unloading = asyncio.create_task(unload())
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "length"
    assert await unloading == 200
    with pytest.raises(openai.NotFoundError, match="not loaded"):
        await ask(chat, extra_body=adapter, max_tokens=1)


async def test_a_gap_goes_on_behind_what_the_output_had_to_begin_with(code: openai.AsyncOpenAI) -> None:
    tokenizer = Tokenizer.load(SHIPPED / "slipstream-code")
    ids = tokenizer.fill_ids("class Stack:\n    def __init__(self):\n        self.", "\n")
    asked: dict[str, Any] = {"prompt": ids, "max_tokens": 12, "stop": "\n"}
    free = await complete(code, **asked)
    begun = await complete(code, **asked, extra_body={"begins_with": free.choices[0].text[:2]})

    assert begun.choices[0].text == free.choices[0].text[2:]
    with pytest.raises(openai.BadRequestError, match="begins_with"):
        await complete(code, **asked, extra_body={"begins_with": "x", "regex": "y+"})
