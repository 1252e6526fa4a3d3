"""Requests of an engine by id: aborted, left, asked about afterwards, too many."""

from __future__ import annotations

import aiohttp

from tests.engines.embedded.engine_process import events, stream_of, usage_of
from tests.engines.embedded.served import Served


async def test_an_abort_ends_the_stream_with_the_exact_count(
    chat_engine: Served, session: aiohttp.ClientSession
) -> None:
    answer = await stream_of(session, chat_engine.url, "req_abort")
    await answer.content.readline()
    async with session.post(f"{chat_engine.url}/abort_request", json={"rid": "req_abo"}) as aborted:
        assert aborted.status == 200
    chunks = await events(answer)
    assert chunks[-2]["choices"][0]["finish_reason"] == "abort"
    count = chunks[-1]["usage"]["completion_tokens"]
    assert 0 < count < 2000
    status, found = await usage_of(session, chat_engine.url, "req_abort")
    assert (status, found["rid"], found["usage"]) == (200, "req_abort", chunks[-1]["usage"])
    assert found["sglext"]["request_timing"]["prefill_ms"] > 0


async def test_how_long_a_schema_took_to_be_compiled_is_told_with_the_answer(
    chat_engine: Served, session: aiohttp.ClientSession
) -> None:
    """Once for a schema: the second request finds it compiled. One without a schema has none."""
    names = [f"name_{number:03d}" for number in range(150)]
    schema = {"type": "object", "properties": {"city": {"type": "string", "enum": names}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema, "strict": True}}
    told = {}
    for rid, change in (("new", {"response_format": form}), ("kept", {"response_format": form}), ("none", {})):
        answer = await stream_of(session, chat_engine.url, rid, max_tokens=20, ignore_eos=False, **change)
        await events(answer)
        _, found = await usage_of(session, chat_engine.url, rid)
        told[rid] = found["sglext"]["request_timing"]["grammar_ms"]
    assert told["new"] > 0
    assert (told["kept"], told["none"]) == (0, 0)


async def test_a_request_that_comes_behind_its_own_abort_uses_nothing(
    chat_engine: Served, session: aiohttp.ClientSession
) -> None:
    async with session.post(f"{chat_engine.url}/abort_request", json={"rid": "req_overtaken"}) as aborted:
        assert aborted.status == 200
    async with await stream_of(session, chat_engine.url, "req_overtaken2") as other:
        assert other.status == 200, "its id only begins so"
    async with await stream_of(session, chat_engine.url, "req_overtaken") as answer:
        assert answer.status == 503
    status, found = await usage_of(session, chat_engine.url, "req_overtaken")
    assert (status, found["usage"]["total_tokens"]) == (200, 0)
    async with await stream_of(session, chat_engine.url, "req_overtaken") as again:
        assert again.status == 200, "that counts once"


async def test_a_client_that_leaves_aborts_its_request(chat_engine: Served, session: aiohttp.ClientSession) -> None:
    answer = await stream_of(session, chat_engine.url, "req_gone")
    await answer.content.readline()
    answer.close()
    status, found = await usage_of(session, chat_engine.url, "req_gone")
    assert status == 200
    assert 0 < found["usage"]["completion_tokens"] < 2000


async def test_usage_of_an_unknown_request_is_404(chat_engine: Served, session: aiohttp.ClientSession) -> None:
    status, error = await usage_of(session, chat_engine.url, "nobody")
    assert (status, error["object"]) == (404, "error")


async def test_a_full_queue_answers_503_and_an_id_in_use_400(
    chat_engine: Served, session: aiohttp.ClientSession
) -> None:
    first = await stream_of(session, chat_engine.url, "req_full", n=16)
    await first.content.readline()
    async with await stream_of(session, chat_engine.url, "req_more") as second:
        assert second.status == 503
        assert second.headers["retry-after"]
    async with await stream_of(session, chat_engine.url, "req_full") as again:
        assert again.status in (400, 503)
    async with session.get(f"{chat_engine.url}/v1/loads") as answer:
        load = (await answer.json())["loads"][0]
        assert load["num_running_reqs"] + load["num_waiting_reqs"] == 16
        assert load["num_running_reqs"] <= 8
    async with session.post(f"{chat_engine.url}/abort_request", json={"abort_all": True}):
        pass
    assert (
        len([chunk for chunk in await events(first) if chunk["choices"] and chunk["choices"][0]["finish_reason"]]) == 16
    )


async def test_flushing_the_cache_forgets_a_prompt(code_engine: Served, session: aiohttp.ClientSession) -> None:
    async def cached() -> int:
        body = {"model": "slipstream-code", "prompt": list(range(300, 364)), "max_tokens": 1}
        async with session.post(f"{code_engine.url}/v1/completions", json=body) as answer:
            return int((await answer.json())["usage"]["prompt_tokens_details"]["cached_tokens"])

    await cached()
    assert await cached() == 63
    async with session.post(f"{code_engine.url}/flush_cache") as answer:
        assert (answer.status, await answer.text()) == (200, "Cache flushed.\n")
    assert await cached() == 0
