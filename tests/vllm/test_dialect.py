"""What the vLLM driver believes, asked of the real vLLM; a new version of it must pass this before it is used."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from contracts.errors import ContextTooLong, EngineFailed, EngineRefused, UnsupportedField
from contracts.generation import ChatPrompt, Generation, TextPrompt
from engines.drivers.base import EngineRequest
from engines.drivers.engine_timing import timing_of
from engines.drivers.error_bodies import usage_of
from engines.drivers.served_models import MODELS, parse_served_models
from engines.drivers.vllm import VLLMDriver
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.tokenizer import Tokenizer
from tests.real_engine import RealEngine, ask, finishes, payloads, read_all, text_of
from tests.vllm.server import BLOCK_TOKENS, BLOCKS, CONTEXT_TOKENS, FOLDER, RUNNING

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(700)]
CHAT = ChatPrompt(({"role": "user", "content": "What is the capital of France?"},))
ENDLESS = {"5": 100.0}
"""A bias that leaves only one token possible: the stream runs until max_tokens."""
LONGEST = 1_500
AHEAD_TOKENS = 4
"""For which it may hold memory before it counts them."""


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(FOLDER)


async def test_a_chat_stream_has_our_id_a_role_first_running_usage_and_a_count_that_includes_the_end(
    engine: RealEngine, tokenizer: Tokenizer
) -> None:
    generation = ask(CHAT, max_tokens=60)
    role, *tokens, last, done = events = await engine.events(generation)
    assert {event["id"] for event in events[:-1]} == {f"chatcmpl-{generation.request_id}"}
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    counts = [event["usage"]["completion_tokens"] for event in (role, *tokens)]
    assert counts == sorted(counts)
    assert [event["choices"][0]["finish_reason"] for event in tokens][-2:] == [None, "stop"]
    text = text_of(events)
    assert "Paris" in text
    usage = usage_of(last["usage"])
    assert last["choices"] == []
    assert usage.prompt_tokens == len(tokenizer.chat_ids(CHAT.messages))
    assert usage.completion_tokens == tokenizer.count(text) + 1, "the end token is counted"
    assert done == b"[DONE]"


@pytest.mark.parametrize("prompt", [CHAT, TextPrompt(("The capital of",))], ids=["chat", "completion"])
async def test_the_streams_usage_is_that_of_a_whole_answer(engine: RealEngine, prompt: ChatPrompt | TextPrompt) -> None:
    generation = ask(prompt, max_tokens=40)
    streamed = await engine.events(generation)
    request = engine.driver.generate(generation, engine.model)
    body = {**msgspec.json.decode(request.body), "stream": False}
    del body["stream_options"]
    status, answer = await engine.fetch(EngineRequest("POST", request.path, msgspec.json.encode(body)))
    whole = msgspec.json.decode(answer)
    assert status == 200
    told, counted = usage_of(streamed[-2]["usage"]), usage_of(whole["usage"])
    assert (told.prompt_tokens, told.completion_tokens) == (counted.prompt_tokens, counted.completion_tokens)
    choice = whole["choices"][0]
    assert text_of(streamed) == (choice["text"] if "text" in choice else choice["message"]["content"])


async def test_a_completion_stream_carries_usage_on_every_event_and_its_finish_on_the_last(engine: RealEngine) -> None:
    *tokens, last, done = await engine.events(ask(TextPrompt(("hi",)), logit_bias=ENDLESS, max_tokens=4))
    counts = [event["usage"]["completion_tokens"] for event in tokens]
    assert counts == sorted(set(counts))
    assert counts[-1] == 4
    *before, finish = (event["choices"][0]["finish_reason"] for event in tokens)
    assert (set(before), finish) == ({None}, "length")
    assert usage_of(last["usage"]).completion_tokens == 4
    assert done == b"[DONE]"


async def test_an_id_ends_a_text_and_no_end_token_does_before_the_least_number_of_tokens(
    engine: RealEngine, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode(await engine.text(ask(CHAT, max_tokens=60)))
    length = (await engine.usage(ask(CHAT, max_tokens=60))).completion_tokens
    assert (await engine.usage(ask(CHAT, max_tokens=60, stop_ids=(ids[2],)))).completion_tokens == 3
    for least in (length + 1, length + 4):
        assert (await engine.usage(ask(CHAT, max_tokens=length + 4, min_tokens=least))).completion_tokens >= least


async def test_a_stop_string_is_cut_off(engine: RealEngine) -> None:
    whole = await engine.text(ask(CHAT, max_tokens=60))
    cut = await engine.events(ask(CHAT, max_tokens=60, stop=("aris",)))
    assert text_of(cut) == whole.partition("aris")[0]
    assert finishes(cut) == ["stop"]


async def test_log_probabilities_come_in_both_shapes(engine: RealEngine) -> None:
    chat = await engine.events(ask(CHAT, logprobs=2, max_tokens=1))
    (content,) = chat[1]["choices"][0]["logprobs"]["content"]
    assert len(content["top_logprobs"]) == 2
    *events, _, _ = await engine.events(ask(TextPrompt(("The capital of",)), logprobs=1))
    told = [event["choices"][0]["logprobs"] for event in events]
    assert "".join(name for one in told for name in one["tokens"]) == text_of([*events, b"[DONE]"])
    assert all(value <= 0 for one in told for value in one["token_logprobs"])


async def test_an_echo_is_scored(engine: RealEngine, tokenizer: Tokenizer) -> None:
    text = "The capital of France"
    first, *_ = await engine.events(ask(TextPrompt((text,), echo=True), logprobs=0, max_tokens=1))
    choice = first["choices"][0]
    assert choice["text"].startswith(text)
    assert len(choice["logprobs"]["token_logprobs"]) == tokenizer.count(text) + 1
    assert choice["logprobs"]["token_logprobs"][0] is None


async def test_several_prompts_and_choices_are_indexed_in_order_and_the_last_event_counts_all(
    engine: RealEngine,
) -> None:
    prompts = TextPrompt(((5, 6), (7, 8, 9)))
    events = await engine.events(ask(prompts, max_tokens=2, n=2, temperature=1.0, logit_bias=ENDLESS))
    assert {choice["index"] for event in events[:-1] for choice in event["choices"]} == {0, 1, 2, 3}
    usage = usage_of(events[-2]["usage"])
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 8)
    chat = await engine.events(ask(CHAT, n=2, max_tokens=4, temperature=1.0, logit_bias=ENDLESS))
    assert max(event["usage"]["completion_tokens"] for event in chat[:-2]) == 4
    assert usage_of(chat[-2]["usage"]).completion_tokens == 8
    assert finishes(chat) == ["length", "length"]


@pytest.mark.parametrize(("temperature", "status"), [(0.0, 400), (1e-9, 200)])
async def test_several_choices_are_refused_at_no_temperature_alone(
    engine: RealEngine, temperature: float, status: int
) -> None:
    body = msgspec.json.decode(engine.driver.generate(ask(CHAT), engine.model).body)
    body |= {"n": 2, "temperature": temperature}
    told, answer = await engine.fetch(EngineRequest("POST", "/v1/chat/completions", msgspec.json.encode(body)))
    assert told == status, answer
    if status == 400:
        with pytest.raises(UnsupportedField, match="temperature"):
            await engine.open(ask(CHAT, n=2, temperature=temperature))


async def test_json_follows_its_schema(engine: RealEngine) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "colour", "schema": {"enum": ["teal", "ochre"]}}}
    prompt = ChatPrompt(CHAT.messages, response_format=form)
    assert msgspec.json.decode(await engine.text(ask(prompt, max_tokens=60))) in ("teal", "ochre")


@pytest.mark.parametrize("prompt", [CHAT, TextPrompt(("hi",))], ids=["chat", "completion"])
async def test_abort_by_id_ends_the_stream_with_an_exact_count(
    engine: RealEngine, prompt: ChatPrompt | TextPrompt
) -> None:
    before = await generated(engine)
    generation = ask(prompt, max_tokens=LONGEST, logit_bias=ENDLESS)
    stream, body = await engine.begun(generation)
    status, _ = await engine.fetch(engine.driver.abort(generation.request_id))
    assert status == 200
    events = payloads(body + await read_all(stream))
    assert finishes(events) == ["abort"]
    final = usage_of(events[-2]["usage"]).completion_tokens
    running = [event["usage"]["completion_tokens"] for event in events[:-2] if event.get("usage")]
    assert running[-1] <= final < LONGEST
    assert events[-1] == b"[DONE]"
    await engine.idle()
    # what it was computing when it was stopped
    assert 0 <= await generated(engine) - before - final <= 2


async def test_abort_by_id_ends_every_choice_of_every_prompt(engine: RealEngine) -> None:
    generation = ask(TextPrompt(((5, 6), (7, 8))), n=2, max_tokens=LONGEST // 2, temperature=1.0, logit_bias=ENDLESS)
    stream = await engine.open(generation)
    body = b""
    while not all(b'"index":%d' % index in body for index in range(4)):
        body += await stream.read()
    assert (await engine.fetch(engine.driver.abort(generation.request_id, generation.choices)))[0] == 200
    events = payloads(body + await read_all(stream))
    assert finishes(events) == ["abort"] * 4


async def test_aborting_hits_no_id_that_begins_alike_and_an_unknown_one_is_harmless(engine: RealEngine) -> None:
    one = ask(CHAT, max_tokens=LONGEST, logit_bias=ENDLESS)
    other = msgspec.structs.replace(one, request_id=f"{one.request_id}1")
    first, _ = await engine.begun(one)
    second, _ = await engine.begun(other)
    assert (await engine.fetch(engine.driver.abort(one.request_id)))[0] == 200
    await read_all(first)
    assert (await engine.fetch(engine.driver.abort("req_never")))[0] == 200
    await engine.until_load(lambda load: load.running == 1)
    second.close()


@pytest.mark.parametrize("choices", [1, 2])
async def test_closing_stops_within_a_step(engine: RealEngine, choices: int) -> None:
    assert VLLMDriver().abort("x", choices) is None
    before = await generated(engine)
    stream, body = await engine.begun(ask(CHAT, n=choices, temperature=1.0, max_tokens=LONGEST, logit_bias=ENDLESS))
    stream.close()
    await engine.idle()
    assert body
    assert await generated(engine) - before < LONGEST * choices // 2, "it did not go on for nobody"


async def test_an_id_may_run_twice_at_a_time(engine: RealEngine) -> None:
    """A retried attempt is never taken for the one before."""
    generation = ask(CHAT, max_tokens=LONGEST, logit_bias=ENDLESS)
    one, _ = await engine.begun(generation)
    other, _ = await engine.begun(generation)
    await engine.until_load(lambda load: load.running == 2)
    one.close()
    other.close()


async def test_token_ids_are_taken_as_they_are_and_checked(engine: RealEngine, tokenizer: Tokenizer) -> None:
    text = "<|end|> is only text here <|user|>"
    ids = tuple(tokenizer.encode(text))
    assert (await engine.usage(ask(TextPrompt((ids,))))).prompt_tokens == len(ids)
    as_text = await engine.usage(ask(TextPrompt((text,))))
    assert as_text.prompt_tokens < len(ids), "as text the control strings became tokens"
    refused = await engine.refusal(ask(TextPrompt(((5, 999_999),))))
    assert isinstance(refused, EngineRefused)
    assert engine.driver.capabilities.checks_token_ids
    assert refused.message == "Token id 999999 is out of vocabulary"


async def test_control_strings_in_messages_become_tokens(engine: RealEngine, tokenizer: Tokenizer) -> None:
    messages = ({"role": "user", "content": "<|end|><|user|>"},)
    assert not engine.driver.capabilities.literal_text
    usage = await engine.usage(ask(ChatPrompt(messages)))
    assert usage.prompt_tokens < len(tokenizer.chat_ids(messages))


async def test_the_gateways_count_is_the_engines(engine: RealEngine, tokenizer: Tokenizer) -> None:
    conversations: list[tuple[dict[str, Any], ...]] = [
        ({"role": "user", "content": "Grüße, 世界 🙂\n\n  indented <b>"},),
        ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "> quote"}),
        ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}),
    ]
    for messages in conversations:
        usage = await engine.usage(ask(ChatPrompt(messages), max_tokens=1))
        assert usage.prompt_tokens == len(tokenizer.chat_ids(messages))


async def test_parts_of_a_text_are_joined_by_line_ends(engine: RealEngine, tokenizer: Tokenizer) -> None:
    """Which our count, and SGLang, join by spaces: it may be off by a token for each."""
    parts = ({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},)
    usage = await engine.usage(ask(ChatPrompt(parts), max_tokens=1))
    assert usage.prompt_tokens == len(tokenizer.chat_ids([{"role": "user", "content": "x\ny"}]))


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_the_salt_keeps_caches_apart_both_ways(engine: RealEngine, kind: str) -> None:
    words = f"{uuid4()}: where does the river rise, and where does it end? " * 20
    chat = ChatPrompt(({"role": "user", "content": words},))
    ids = tuple(random.choices(range(100, 300), k=200))  # the engine may have served this test before
    prompt: ChatPrompt | TextPrompt = chat if kind == "chat" else TextPrompt((ids,))
    for salt in ("one", "two", ""):
        assert (await engine.usage(ask(prompt, salt=salt))).cached_tokens == 0, salt
    for salt in ("two", "one", ""):
        cached = (await engine.usage(ask(prompt, salt=salt))).cached_tokens
        assert cached >= BLOCK_TOKENS, salt
        assert cached % BLOCK_TOKENS == 0, "whole blocks"


async def test_a_higher_priority_of_ours_goes_first(engine: RealEngine) -> None:
    fillers = [await engine.begun(endless(str(number))) for number in range(RUNNING)]
    low = asyncio.create_task(engine.begun(endless("low", priority=-10)))
    await engine.until_load(lambda load: load.waiting == 1)
    high = asyncio.create_task(engine.begun(endless("high", priority=10)))
    await engine.until_load(lambda load: load.waiting == 2)
    fillers.pop()[0].close()
    # it came later, and goes on for long: the other still waits when its first token is there
    fillers.append(await high)
    load = await engine.load()
    assert (load.running, load.waiting, low.done()) == (RUNNING, 1, False)
    fillers.pop()[0].close()
    fillers.append(await low)
    for stream, _ in fillers:
        stream.close()


def endless(prompt: str, priority: int = 0) -> Generation:
    return ask(TextPrompt((prompt,)), priority=priority, max_tokens=LONGEST, logit_bias=ENDLESS)


async def test_load_tells_what_runs_what_memory_it_holds_and_of_how_much(engine: RealEngine) -> None:
    before = await engine.load()
    assert (before.running, before.waiting, before.used_tokens) == (0, 0, 0), "what is only cached does not count"
    assert before.capacity_tokens == BLOCKS * BLOCK_TOKENS
    prompt = TextPrompt((tuple(range(100, 400)),))
    answer_tokens = LONGEST
    # on busy cores the answer may be beyond the prompt's three blocks before it is asked: then once more
    while answer_tokens > 3 * BLOCK_TOKENS - 300 - AHEAD_TOKENS:
        generated_before = await generated(engine)
        stream, _ = await engine.begun(ask(prompt, max_tokens=LONGEST, logit_bias=ENDLESS))
        load = await engine.until_load(lambda load: load.running == 1)
        answer_tokens = await generated(engine) - generated_before
        stream.close()
        await engine.idle()
    # of its blocks it counts one less than it has
    assert load.used_tokens == pytest.approx(3 * BLOCK_TOKENS, rel=1.1 / BLOCKS)
    assert load.max_running == 0, "told nowhere"


async def test_what_does_not_fit_is_thrown_out_computed_again_and_counted(engine: RealEngine) -> None:
    prompts = [TextPrompt((tuple(range(first, first + 200)),)) for first in (100, 300, 500, 700)]
    alone = [await engine.text(ask(prompt, max_tokens=100, min_tokens=100)) for prompt in prompts]
    before = await engine.load()
    together = await asyncio.gather(
        *(engine.text(ask(prompt, max_tokens=LONGEST, min_tokens=LONGEST)) for prompt in prompts)
    )
    assert (await engine.load()).retracted > before.retracted
    assert all(long.startswith(short[:20]) for short, long in zip(alone, together, strict=True))


async def test_its_counters_are_ours(engine: RealEngine) -> None:
    before = await counts(engine)
    prompt = ChatPrompt(({"role": "user", "content": "Its counters are ours, are they? " * 30},))
    usages = [await engine.usage(ask(prompt, salt="counted")) for _ in range(2)]
    after = await counts(engine)
    assert after.prompt_tokens - before.prompt_tokens == sum(usage.prompt_tokens for usage in usages)
    assert after.cached_tokens - before.cached_tokens == usages[1].cached_tokens > 0
    assert after.completion_tokens - before.completion_tokens == sum(usage.completion_tokens for usage in usages)
    assert after.stages is not None
    assert before.stages is not None
    assert after.stages.requests - before.stages.requests == 2
    assert after.stages.prefill_s > before.stages.prefill_s
    assert after.stages.queue_s > before.stages.queue_s


async def test_the_last_event_tells_where_the_time_before_the_first_token_went(engine: RealEngine) -> None:
    last = (await engine.events(ask(CHAT)))[-2]
    timing = timing_of(last["metrics"])
    assert timing is not None
    assert 0 < timing.prefill_s < 60
    assert 0 <= timing.queue_s < 60


async def test_refusals_are_in_our_words(engine: RealEngine) -> None:
    too_long = await engine.refusal(ask(TextPrompt(((5,) * 3_000,))))
    assert isinstance(too_long, ContextTooLong)
    assert f"context is {CONTEXT_TOKENS} tokens. The prompt has 3000 tokens" in too_long.message
    unread = await engine.refusal(ask(ChatPrompt(({"role": "user", "content": "hi there " * 9_000},))))
    assert isinstance(unread, ContextTooLong)
    assert "characters, which are at least 2049 tokens" in unread.message
    output = await engine.refusal(ask(CHAT, max_tokens=5_000))
    assert (type(output), output.param) == (EngineRefused, "max_tokens")
    assert output.message.endswith("Please request fewer output tokens.")
    value = await engine.refusal(ask(CHAT, top_p=2.0))
    assert (value.message, value.param) == ("top_p must be in (0, 1], got 2.0.", "top_p")
    kind = await engine.refusal(ask(CHAT, temperature="warm"))
    assert kind.message.startswith("temperature: Input should be a valid number")
    assert kind.param == "temperature"
    for field, asked in (
        ("stop_token_ids", ask(CHAT, stop_ids=(999_999,))),
        ("logit_bias", ask(CHAT, logit_bias={"999999": 1.0})),
        ("logprobs", ask(TextPrompt(("a",)), logprobs=50)),
    ):
        refused = await engine.refusal(asked)
        assert isinstance(refused, EngineRefused), field
        assert field in refused.message or "logprobs" in refused.message
        assert "(parameter=" not in refused.message
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    assert isinstance(await engine.refusal(ask(ChatPrompt(CHAT.messages, response_format=schema))), EngineRefused)


async def test_tools_need_a_parser_unless_they_are_forbidden(engine: RealEngine) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    for choice in ("auto", tool):
        refused = await engine.refusal(ask(ChatPrompt(CHAT.messages, tools=(tool,), tool_choice=choice)))
        assert (type(refused), refused.param) == (UnsupportedField, "tool_choice")
    forbidden = ChatPrompt(CHAT.messages, tools=(tool,), tool_choice="none")
    events = await engine.events(ask(forbidden, max_tokens=30))
    assert not any(choice["delta"].get("tool_calls") for event in events[:-1] for choice in event["choices"])


async def test_an_answer_is_cut_to_what_fits(engine: RealEngine) -> None:
    room = 48
    events = await engine.events(
        ask(TextPrompt(((5,) * (CONTEXT_TOKENS - room),)), max_tokens=1_000, logit_bias=ENDLESS)
    )
    assert usage_of(events[-2]["usage"]).completion_tokens == room
    assert finishes(events) == ["length"]


async def test_another_name_than_it_serves_is_ours_to_mend(engine: RealEngine) -> None:
    stranger = RealEngine(engine.driver, engine.url, "other", engine.connections)
    refused = await stranger.refusal(ask(CHAT))
    assert isinstance(refused, EngineFailed)
    assert "misconfigured" in refused.message


async def test_what_the_driver_refuses_vllm_would_refuse_too(engine: RealEngine) -> None:
    body = msgspec.json.decode(engine.driver.generate(ask(TextPrompt(("hi",))), engine.model).body)
    status, answer = await engine.fetch(
        EngineRequest("POST", "/v1/completions", msgspec.json.encode({**body, "suffix": "there"}))
    )
    assert status == 400
    assert b"suffix" in answer


async def test_the_token_guards_everything_but_health_and_metrics(engine: RealEngine) -> None:
    stranger = RealEngine(engine.driver, engine.url, engine.model, EngineConnections(OneKey("wrong")))
    try:
        for guarded in (engine.driver.generate(ask(CHAT), "m"), engine.driver.abort("x"), MODELS):
            status, body = await stranger.fetch(guarded)
            assert status == 401
            assert isinstance(engine.driver.error(status, body), EngineFailed)
        for open_to_all in (engine.driver.health(), engine.driver.load()):
            assert (await stranger.fetch(open_to_all))[0] == 200
    finally:
        await stranger.connections.close()


async def test_it_says_what_it_serves_and_how_long(engine: RealEngine) -> None:
    (model,) = parse_served_models((await engine.fetch(MODELS))[1])
    assert (model.id, model.max_model_len) == (engine.model, CONTEXT_TOKENS)


async def counts(engine: RealEngine) -> Any:
    """Its counters now."""
    assert isinstance(engine.driver, VLLMDriver)
    return engine.driver.parse_counts((await engine.fetch(engine.driver.counts()))[1])


async def generated(engine: RealEngine) -> int:
    """Tokens it has generated since it started; includes what was aborted."""
    return int((await counts(engine)).completion_tokens)
