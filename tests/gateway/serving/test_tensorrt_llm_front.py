"""The pipeline in front of `trtllm-serve disaggregated`: every way a request can end behind it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec
import pytest

from contracts.lease import Engine
from contracts.usage import Finish, Outcome
from tests.fakes.tensorrt_llm import FakeTensorRTLLM, Generation, fake_tensorrt_llm
from tests.fakes.tensorrt_llm_front import FakeFront, fake_front
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import Harness, body
from tests.gateway.serving.test_tensorrt_llm import eras, events


class Behind(NamedTuple):
    """One front and its servers."""

    front: FakeFront
    context: FakeTensorRTLLM
    generation: FakeTensorRTLLM


@contextlib.asynccontextmanager
async def platform_on(era: Generation, fronts: int = 1) -> AsyncIterator[tuple[Harness, list[Behind]]]:
    """The pipeline, and what is behind each of its engines."""
    async with contextlib.AsyncExitStack() as stack:
        halves, places = [], []
        for number in range(fronts):
            context, context_url = await stack.enter_async_context(fake_tensorrt_llm(era, disconnect_poll_s=0.01))
            generation, its_url = await stack.enter_async_context(fake_tensorrt_llm(era, disconnect_poll_s=0.01))
            front, url = await stack.enter_async_context(fake_front(era, [context_url], [its_url]))
            halves.append(Behind(front, context, generation))
            places.append(Engine(f"trt-{number}", url, "tensorrt_llm", "llama-70b", "pool"))
        platform = Harness((), tuple(places))
        try:
            yield platform, halves
        finally:
            await platform.serving.stop()
            await platform.connections.close()


def text_of(client: Client) -> str:
    return "".join(one["delta"].get("content") or "" for event in events(client) for one in event["choices"])


@eras
async def test_a_stream_is_that_of_the_generation_server_with_its_usage(era: Generation) -> None:
    async with platform_on(era) as (platform, ((front, context, generation),)):
        client = Client()
        await platform.serve(client, body(stream=True, stream_options={"include_usage": True}))
        assert text_of(client) == " t0 t1 t2 t3", "the context server's token is not told twice"
        told = events(client)
        assert len({event["id"] for event in told}) == 1
        usage = told[-1]["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 4)
        (sent,) = front.asked
        assert not {"disaggregated_params", "prompt_token_ids"} & sent.keys(), "the handshake is the front's alone"
        assert context.asked[0].body["disaggregated_params"]["request_type"] == "context_only"
        assert context.asked[0].body["cache_salt"] == generation.asked[0].body["cache_salt"] == sent["cache_salt"]
        assert generation.asked[0].body["disaggregated_params"]["request_type"] == "generation_only"
        (record,) = platform.journal.records
        assert (record.finish, record.outcome, record.billed) == (Finish.COMPLETE, Outcome.EXACT, True)
        platform.require_balanced()


@eras
async def test_a_client_that_leaves_frees_the_generation_server(era: Generation) -> None:
    async with platform_on(era) as (platform, ((_, _, generation),)):
        generation.script = msgspec.structs.replace(generation.script, tokens=10_000, token_s=0.002)
        client = Client(leave_at_write=6)
        await platform.serve(client, body(stream=True, max_tokens=2_000))
        (seen,) = generation.asked
        await seen.ended.wait()
        assert seen.aborted
        assert seen.tokens < 2_000
        (record,) = platform.journal.records
        assert (record.finish, record.outcome, record.billed) == (Finish.CLIENT_GONE, Outcome.LOWER_BOUND, True)
        platform.require_balanced()


@eras
async def test_a_context_server_that_hangs_up_is_asked_again_by_the_front(era: Generation) -> None:
    async with platform_on(era) as (platform, ((front, context, generation),)):
        context.script.hangs_up = 1
        client = Client()
        await platform.serve(client, body(stream=True))
        assert text_of(client) == " t0 t1 t2 t3"
        assert (len(context.asked), len(generation.asked), front.retried) == (2, 1, 1)
        assert len(platform.journal.records) == 1
        platform.require_balanced()


FAULTS: list[dict[str, Any]] = [
    {"hangs_up": 100},
    {"internal_error": "list index out of range"},
    {"executor_dies": True},
]


@eras
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("half", ["context", "generation"])
async def test_what_dies_behind_a_front_before_the_first_byte_runs_behind_another(
    era: Generation, half: str, fault: dict[str, Any]
) -> None:
    """A context server's failure is a 500 of the front; a generation server's a 200 that breaks off at once."""
    async with platform_on(era, fronts=2) as (platform, (broken, good)):
        server: FakeTensorRTLLM = getattr(broken, half)
        server.script = msgspec.structs.replace(server.script, **fault)
        client = Client()
        await platform.serve(client, body(stream=True))
        assert client.answer.status == 200
        assert text_of(client) == " t0 t1 t2 t3"
        assert (len(broken.front.asked), len(good.front.asked)) == (1, 1)
        assert [record.billed for record in platform.journal.records] == [False, True]
        platform.require_balanced()


@eras
async def test_a_generation_server_that_breaks_off_is_counted_as_far_as_it_came(era: Generation) -> None:
    async with platform_on(era) as (platform, ((_, _, generation),)):
        generation.script.fail_after = 2
        client = Client()
        await platform.serve(client, body(stream=True))
        assert b'"error"' in client.answer.body
        assert b"[DONE]" not in client.answer.body
        (record,) = platform.journal.records
        assert (record.outcome, record.usage.completion_tokens) == (Outcome.LOWER_BOUND, 2)
        platform.require_balanced()


@eras
async def test_several_choices_are_refused_by_name_and_blame_nobody(era: Generation) -> None:
    """A front takes one choice of a context server, and answers 500 of its own to more."""
    async with platform_on(era, fronts=2) as (platform, (one, other)):
        client = Client()
        await platform.serve(client, body(stream=True, n=2))
        assert client.answer.status == 400
        assert msgspec.json.decode(client.answer.body)["error"]["param"] == "n"
        assert len(one.front.asked) + len(other.front.asked) == 1, "every front would say the same"
        platform.require_balanced()


@eras
async def test_an_answer_that_its_first_token_ends_cannot_be_told_from_a_failure(era: Generation) -> None:
    """The front sends `[DONE]` and nothing before it: neither a text nor what is to be billed."""
    async with platform_on(era) as (platform, ((_, context, generation),)):
        context.script.first_token_ends = True
        client = Client()
        await platform.serve(client, body(stream=True))
        assert client.answer.status == 502
        assert not generation.asked
        assert not any(record.billed for record in platform.journal.records)
        platform.require_balanced()
