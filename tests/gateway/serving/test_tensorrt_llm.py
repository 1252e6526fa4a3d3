"""The pipeline in front of a server that behaves as `trtllm-serve` does: every way a request can end there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contracts.lease import Engine
from contracts.usage import Finish, Outcome
from tests.fakes.tensorrt_llm import FakeTensorRTLLM, Generation, fake_tensorrt_llm
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import Harness, body


@contextlib.asynccontextmanager
async def platform_on(generation: Generation, engines: int = 1) -> AsyncIterator[tuple[Harness, list[FakeTensorRTLLM]]]:
    """The pipeline, and its engines."""
    async with contextlib.AsyncExitStack() as stack:
        fakes, places = [], []
        for number in range(engines):
            fake, url = await stack.enter_async_context(fake_tensorrt_llm(generation, disconnect_poll_s=0.01))
            fakes.append(fake)
            places.append(Engine(f"trt-{number}", url, "tensorrt_llm", "llama-70b", "pool"))
        platform = Harness((), tuple(places))
        try:
            yield platform, fakes
        finally:
            await platform.serving.stop()
            await platform.connections.close()


eras = pytest.mark.parametrize("era", ["1.2", "1.4"])


def events(client: Client) -> list[dict[str, Any]]:
    *payloads, last = [line[6:] for line in client.answer.body.split(b"\n\n") if line]
    assert last == b"[DONE]"
    return [msgspec.json.decode(payload) for payload in payloads]


@eras
@pytest.mark.parametrize("choices", [1, 2])
async def test_a_stream_has_one_id_our_model_and_exact_usage(era: Generation, choices: int) -> None:
    """1.2 gives each event an id of its own; the role's event ends in a space."""
    async with platform_on(era) as (platform, (fake,)):
        fake.script.cached_tokens = 3
        client = Client()
        await platform.serve(client, body(stream=True, n=choices, stream_options={"include_usage": True}))
        told = events(client)
        assert len({event["id"] for event in told}) == 1
        assert {event["model"] for event in told} == {"m"}
        text = [
            "".join(
                choice["delta"].get("content") or ""
                for event in told
                for choice in event["choices"]
                if choice["index"] == index
            )
            for index in range(choices)
        ]
        assert text == [" t0 t1 t2 t3"] * choices
        usage = told[-1]["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 4 * choices)
        assert usage["prompt_tokens_details"]["cached_tokens"] == 3
        (record,) = platform.journal.records
        assert (record.finish, record.outcome, record.billed) == (Finish.COMPLETE, Outcome.EXACT, True)
        platform.require_balanced()


@eras
async def test_a_server_that_refuses_unknown_fields_takes_its_own_parameters(era: Generation) -> None:
    async with platform_on(era) as (platform, (fake,)):
        own: dict[str, Any] = {"top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1, "skip_special_tokens": False}
        client = Client()
        await platform.serve(client, body(**own, chat_template_kwargs={"enable_thinking": False}))
        assert client.answer.status == 200
        (seen,) = fake.asked
        assert {name: seen.body[name] for name in own} == own
        assert seen.body["chat_template_kwargs"] == {"enable_thinking": False}
        platform.require_balanced()


@eras
async def test_a_whole_answer_is_collected(era: Generation) -> None:
    async with platform_on(era) as (platform, _):
        client = Client()
        await platform.serve(client, body())
        answer = msgspec.json.decode(client.answer.body)
        assert answer["choices"][0]["message"]["content"] == " t0 t1 t2 t3"
        assert answer["choices"][0]["finish_reason"] == "stop"
        platform.require_balanced()


@eras
@pytest.mark.parametrize("fault", [{"internal_error": "list index out of range"}, {"executor_dies": True}])
async def test_what_fails_before_the_first_byte_runs_elsewhere(era: Generation, fault: dict[str, Any]) -> None:
    """Its own exceptions are 400, and its death a 200 with `null`: neither is the client's."""
    async with platform_on(era, engines=2) as (platform, (broken, good)):
        broken.script = msgspec.structs.replace(broken.script, **fault)
        client = Client()
        await platform.serve(client, body(stream=True))
        assert client.answer.status == 200
        assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events(client)) == " t0 t1 t2 t3"
        assert (len(broken.asked), len(good.asked)) == (1, 1)
        assert [record.billed for record in platform.journal.records] == [False, True]
        platform.require_balanced()


@eras
async def test_a_stream_that_breaks_off_is_told_and_counted_as_far_as_it_came(era: Generation) -> None:
    async with platform_on(era) as (platform, (fake,)):
        fake.script.fail_after = 2
        client = Client()
        await platform.serve(client, body(stream=True))
        assert b'"error"' in client.answer.body
        assert b"[DONE]" not in client.answer.body
        (record,) = platform.journal.records
        assert (record.outcome, record.usage.completion_tokens) == (Outcome.LOWER_BOUND, 2)
        platform.require_balanced()


@eras
async def test_a_client_that_leaves_has_its_request_stopped_by_the_closed_connection(era: Generation) -> None:
    async with platform_on(era) as (platform, (fake,)):
        fake.script = msgspec.structs.replace(fake.script, tokens=10_000, token_s=0.002)
        client = Client(leave_at_write=6)
        await platform.serve(client, body(stream=True, max_tokens=2_000))
        (seen,) = fake.asked
        await seen.ended.wait()
        assert seen.aborted
        assert seen.tokens < 2_000
        (record,) = platform.journal.records
        assert (record.finish, record.outcome, record.billed) == (Finish.CLIENT_GONE, Outcome.LOWER_BOUND, True)
        assert 0 < record.usage.completion_tokens <= seen.tokens
        platform.require_balanced()
