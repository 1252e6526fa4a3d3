"""What the SGLang driver believes, asked of the real SGLang; a new version of it must pass this before it is used.

How requests are stopped is in `test_abort.py`, what it reports of its load in `test_loads.py`.
"""

from __future__ import annotations

import subprocess
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from contracts.errors import ContextTooLong, EngineFailed, EngineRefused
from contracts.generation import ChatPrompt, TextPrompt
from engines.drivers.base import EngineRequest
from engines.drivers.error_bodies import usage_of
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.tokenizer import Tokenizer
from tests.real_engine import ask, finishes, payloads, read_all
from tests.sglang.client import CHAT, DRIVER, ENDLESS, Client
from tests.sglang.server import SGLangServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400)]


@pytest.fixture(scope="session")
def tokenizer(sglang: SGLangServer) -> Tokenizer:
    return Tokenizer.load(sglang.folder)


async def test_a_chat_stream_has_our_id_a_role_first_running_usage_and_a_count_that_includes_the_end(
    engine: Client, tokenizer: Tokenizer
) -> None:
    generation = ask(CHAT, max_tokens=60)
    events = await engine.events(generation)
    assert {event["id"] for event in events[:-1]} == {generation.request_id}
    role, *tokens, finish, last, done = events
    assert role["choices"][0]["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
    assert "usage" not in role
    assert [event["usage"]["completion_tokens"] for event in tokens] == sorted(
        event["usage"]["completion_tokens"] for event in tokens
    )
    assert (finish["choices"][0]["finish_reason"], finish["choices"][0]["matched_stop"]) == ("stop", 3)
    assert "usage" not in finish
    text = "".join(event["choices"][0]["delta"]["content"] for event in tokens)
    assert "Paris" in text
    usage = usage_of(last["usage"])
    assert last["choices"] == []
    assert usage.prompt_tokens == len(tokenizer.chat_ids(generation.prompt.messages))  # type: ignore[union-attr]
    assert usage.completion_tokens == tokenizer.count(text) + 1, "the end token is counted"
    assert done == b"[DONE]"


async def test_an_id_ends_a_text_and_no_end_token_does_before_the_least_number_of_tokens(
    engine: Client, tokenizer: Tokenizer
) -> None:
    plain = await engine.events(ask(CHAT, max_tokens=60))
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in plain[:-2])
    ids, length = tokenizer.encode(text), (await engine.usage(ask(CHAT, max_tokens=60))).completion_tokens
    assert (await engine.usage(ask(CHAT, max_tokens=60, stop_ids=(ids[2],)))).completion_tokens == 3
    for least in (length + 1, length + 4):
        longer = await engine.usage(ask(CHAT, max_tokens=length + 4, min_tokens=least))
        assert longer.completion_tokens >= least


async def test_a_completions_events_tell_each_tokens_text_and_log_probability(
    engine: Client, tokenizer: Tokenizer
) -> None:
    *events, _, _ = await engine.events(ask(TextPrompt(("The capital of",)), logprobs=1))
    choices = [event["choices"][0] for event in events]
    told = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert "".join(name for one in told for name in one["tokens"]) == "".join(choice["text"] for choice in choices)
    assert all(value <= 0 for one in told for value in one["token_logprobs"])


async def test_a_completion_stream_carries_usage_on_every_event_and_its_finish_on_the_last(
    engine: Client,
) -> None:
    *tokens, last, done = await engine.events(ask(TextPrompt(("hi",)), logit_bias=ENDLESS, max_tokens=4))
    # one event for two tokens where the first ends in the middle of a character, or the server is busy
    counts = [event["usage"]["completion_tokens"] for event in tokens]
    assert counts == sorted(set(counts))
    assert counts[-1] == 4
    *before, finish = (event["choices"][0]["finish_reason"] for event in tokens)
    assert (set(before), finish) == ({None}, "length")
    assert usage_of(last["usage"]).completion_tokens == 4
    assert done == b"[DONE]"


async def test_running_usage_counts_one_choice_and_the_last_event_all(engine: Client) -> None:
    events = await engine.events(ask(CHAT, n=2, max_tokens=4, logit_bias=ENDLESS))
    running = [event["usage"]["completion_tokens"] for event in events[:-2] if event.get("usage")]
    assert max(running) == 4
    usage = usage_of(events[-2]["usage"])
    assert usage.completion_tokens == 8
    assert usage.prompt_tokens == (await engine.usage(ask(CHAT))).prompt_tokens, "the prompt is counted once"


async def test_token_ids_are_taken_as_they_are(engine: Client, tokenizer: Tokenizer) -> None:
    text = "<|end|> is only text here <|user|>"
    ids = tuple(tokenizer.encode(text))
    usage = await engine.usage(ask(TextPrompt((ids,))))
    assert usage.prompt_tokens == len(ids)
    as_text = await engine.usage(ask(TextPrompt((text,))))
    assert as_text.prompt_tokens < usage.prompt_tokens, "as text the control strings became tokens"


async def test_several_prompts_are_indexed_in_order(engine: Client) -> None:
    events = await engine.events(ask(TextPrompt(((5, 6), (7, 8, 9))), max_tokens=2, logit_bias=ENDLESS))
    assert {choice["index"] for event in events[:-1] for choice in event["choices"]} == {0, 1}
    usage = usage_of(events[-2]["usage"])
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 4)


async def test_control_strings_in_messages_become_tokens(engine: Client, tokenizer: Tokenizer) -> None:
    messages = ({"role": "user", "content": "<|end|><|user|>"},)
    assert not DRIVER.capabilities.literal_text
    usage = await engine.usage(ask(ChatPrompt(messages)))
    assert usage.prompt_tokens == 5
    assert usage.prompt_tokens < len(tokenizer.chat_ids(messages))


async def test_the_gateways_count_is_the_engines(engine: Client, tokenizer: Tokenizer) -> None:
    conversations: list[tuple[dict[str, Any], ...]] = [
        ({"role": "user", "content": "Grüße, 世界 🙂\n\n  indented <b>"},),
        ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "> quote"}),
        (
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        ),
    ]
    for messages in conversations:
        usage = await engine.usage(ask(ChatPrompt(messages), max_tokens=1))
        assert usage.prompt_tokens == len(tokenizer.chat_ids(messages))


async def test_the_salt_keeps_caches_apart(engine: Client) -> None:
    prompt, one, two = TextPrompt((tuple(range(100, 164)),)), uuid4().hex, uuid4().hex
    assert (await engine.usage(ask(prompt, salt=one))).cached_tokens == 0
    assert (await engine.usage(ask(prompt, salt=two))).cached_tokens == 0
    assert (await engine.usage(ask(prompt, salt=one))).cached_tokens == 63


async def test_priority_is_accepted_by_default(engine: Client) -> None:
    assert (await engine.usage(ask(TextPrompt(("hi",)), priority=1))).prompt_tokens == 1


async def test_a_suffix_would_be_ignored_silently(engine: Client) -> None:
    request = DRIVER.generate(ask(TextPrompt(("hi",))), engine.server.model)
    body = {**msgspec.json.decode(request.body), "suffix": "there"}
    stream = await engine.connections.open(
        engine.server.url, EngineRequest(request.method, request.path, msgspec.json.encode(body))
    )
    assert usage_of(payloads(await read_all(stream))[-2]["usage"]).prompt_tokens == 1


async def test_log_probabilities_come_in_both_shapes(engine: Client) -> None:
    chat = await engine.events(ask(CHAT, logprobs=2, max_tokens=1))
    (content,) = chat[1]["choices"][0]["logprobs"]["content"]
    assert len(content["top_logprobs"]) == 2
    text = await engine.events(ask(TextPrompt(("hi",)), logprobs=2, max_tokens=1))
    assert len(text[0]["choices"][0]["logprobs"]["top_logprobs"][0]) == 2
    bare = await engine.events(ask(TextPrompt(("hi",)), logprobs=0, max_tokens=1))
    assert len(bare[0]["choices"][0]["logprobs"]["token_logprobs"]) == 1


async def test_a_stop_string_is_cut_off(engine: Client) -> None:
    whole = await engine.events(ask(CHAT, max_tokens=60))
    cut = await engine.events(ask(CHAT, max_tokens=60, stop=("aris",)))
    text, kept = (
        "".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-2]) for events in (whole, cut)
    )
    assert kept == text.partition("aris")[0]
    assert finishes(cut) == ["stop"]


async def test_refusals_are_recognised(engine: Client) -> None:
    too_long = await engine.refusal(ask(TextPrompt(((5,) * 5000,))))
    assert isinstance(too_long, ContextTooLong)
    assert "4608" in too_long.message
    assert "5000" in too_long.message
    both = await engine.refusal(ask(TextPrompt(((5,) * 4000,)), max_tokens=1000))
    assert isinstance(both, ContextTooLong)
    assert "5000 in all" in both.message
    value = await engine.refusal(ask(CHAT, top_p=2.0))
    assert isinstance(value, EngineRefused)
    assert value.message == "top_p must be in (0, 1], got 2.0."
    kind = await engine.refusal(ask(CHAT, temperature="warm"))
    assert isinstance(kind, EngineRefused)
    assert kind.message.startswith("temperature: Input should be a valid number")
    assert "/" not in kind.message


async def test_an_id_can_run_only_once_at_a_time(engine: Client) -> None:
    generation = ask(CHAT, max_tokens=4000, logit_bias=ENDLESS)
    stream = await engine.open(generation)
    await stream.read()
    again = await engine.refusal(generation)
    assert type(again) is EngineFailed
    stream.close()
    await engine.idle()


async def test_the_token_guards_everything_but_health_and_metrics(engine: Client) -> None:
    stranger = EngineConnections(OneKey("wrong"))
    try:
        guarded = [
            DRIVER.generate(ask(CHAT), "m"),
            DRIVER.abort("x"),
            DRIVER.load(),
            EngineRequest("GET", "/v1/models"),
        ]
        for request in guarded:
            assert request is not None
            status, body = await stranger.fetch(engine.server.url, request, 30)
            assert status == 401
            assert isinstance(DRIVER.error(status, body), EngineFailed)
        for request in (DRIVER.health(), EngineRequest("GET", "/metrics")):
            assert (await stranger.fetch(engine.server.url, request, 30))[0] == 200
    finally:
        await stranger.close()


def test_chat_ids_equal_apply_chat_template(sglang: SGLangServer, tokenizer: Tokenizer) -> None:
    conversations = [
        [{"role": "user", "content": "hi"}],
        [{"role": "system", "content": "x > y < z"}, {"role": "user", "content": " \n\tGrüße 世界 🙂 <|"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "|> c"}],
    ]
    program = (
        "import json,sys\nfrom transformers import PreTrainedTokenizerFast as T\nt=T.from_pretrained(sys.argv[1])\n"
        "print(json.dumps([t.apply_chat_template(c,add_generation_prompt=True,return_dict=False) "
        "for c in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [str(sglang.venv / "bin" / "python"), "-W", "ignore", "-c", program, str(sglang.folder)],
        input=msgspec.json.encode(conversations), capture_output=True, check=True, timeout=300,
    )  # fmt: skip
    expected = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert [tokenizer.chat_ids(conversation) for conversation in conversations] == expected
