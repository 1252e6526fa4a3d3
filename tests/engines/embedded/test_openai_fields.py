"""Everything an OpenAI client may send, through an engine that serves."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import tokenizers
import torch

from contracts.generation import Caller, ChatPrompt, Generation, TextPrompt, Tier
from contracts.generation import Sampling as GenerationSampling
from engines.drivers.embedded import EmbeddedDriver
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.openai.collect import Collector
from tests.engines.embedded import naive_llama
from tests.engines.embedded.engine_process import TOKEN
from tests.engines.embedded.served import Served, served
from tests.engines.embedded.tiny import CONFIG, SHIPPED, random_weights

TEMPLATE = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>"
    "Answer in <tool_call>.{% endif %}"
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ '<|user|>' + m['content'] }}"
    "{% elif m['role'] == 'user' %}{{ '<|user|>' + m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{{ '<|assistant|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
    "{{ hint }}{% if enable_thinking is defined and not enable_thinking %}at once{% endif %}"
    "{{ '<|assistant|>' }}"
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells it.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string", "maxLength": 10}, "days": {"enum": [1, 3]}},
            "required": ["town", "days"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
CLOSED_CLOCK = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}
"""Takes nothing, so that a call of it ends wherever the model goes; one without a schema takes any object."""
ASK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
    "required": ["town", "sure"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The shipped chat model with a template that takes tools."""
    folder = tmp_path_factory.mktemp("tools") / "talker"
    shutil.copytree(SHIPPED / "slipstream-chat", folder)
    path = folder / "tokenizer_config.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "chat_template": f"{{% if not silent %}}{TEMPLATE}{{% endif %}}"})
    )
    async with served(model=str(folder), grammar={"max_schema_bytes": 2000}) as engine:
        yield engine


@pytest.fixture
async def client(engine: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
async def random_engine(tiny_model: Path) -> AsyncIterator[Served]:
    kv = {"budget_bytes": 4_000_000, "page_tokens": 4}
    async with served(model=str(tiny_model), name="tiny", kv=kv) as engine:
        yield engine


@pytest.fixture
async def tiny(random_engine: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{random_engine.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


async def chat(client: openai.AsyncOpenAI, **body: Any) -> Any:
    settings = {"model": "talker", "messages": ASK, "max_tokens": 120, "seed": 1, **body}
    return await client.chat.completions.create(**settings)


async def test_json_by_schema(client: openai.AsyncOpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "capital", "schema": SCHEMA, "strict": True}}
    answer = await chat(client, response_format=form, temperature=1.0, n=3)
    for choice in answer.choices:
        value = json.loads(choice.message.content)
        assert set(value) == {"town", "sure"}
        assert isinstance(value["sure"], bool)
        assert choice.finish_reason == "stop"


async def test_a_json_object(client: openai.AsyncOpenAI) -> None:
    answer = await chat(client, response_format={"type": "json_object"}, temperature=0, max_tokens=200)
    assert answer.choices[0].message.content.startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)


@pytest.mark.parametrize(
    ("extra", "pattern"),
    [
        ({"regex": "(yes|no), [0-9]{3}"}, "(yes|no), [0-9]{3}"),
        ({"ebnf": 'root ::= ("ab" | "cd") "!"'}, "(ab|cd)!"),
        ({"json_schema": json.dumps({"enum": ["x", "y"]})}, '"[xy]"'),
    ],
)
async def test_sglangs_own_forms(client: openai.AsyncOpenAI, extra: dict[str, Any], pattern: str) -> None:
    answer = await chat(client, extra_body=extra)
    assert re.fullmatch(pattern, answer.choices[0].message.content)
    completion = await client.completions.create(model="talker", prompt="Say", max_tokens=60, extra_body=extra)
    assert re.fullmatch(pattern, completion.choices[0].text)


def check_call(name: str, arguments: str) -> None:
    value = json.loads(arguments)
    if name == "weather":
        assert set(value) == {"town", "days"}
        assert value["days"] in (1, 3)


async def test_a_required_tool_is_called(client: openai.AsyncOpenAI) -> None:
    answer = await chat(client, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    check_call(call.function.name, call.function.arguments)
    assert answer.usage.prompt_tokens > 60  # the tools were shown


async def test_a_named_tool_is_the_one_called_and_its_stream_is_the_same(client: openai.AsyncOpenAI) -> None:
    body: dict[str, Any] = {
        "tools": [CLOCK, WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "temperature": 0,
    }
    whole = (await chat(client, **body)).choices[0]
    (call,) = whole.message.tool_calls
    assert call.function.name == "weather"
    check_call("weather", call.function.arguments)
    chunks = [chunk async for chunk in await chat(client, stream=True, **body)]
    deltas = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ()]
    assert deltas[0].function.name == "weather"
    assert deltas[0].id.startswith("call_")
    assert len(deltas) > 3
    assert "".join(part.function.arguments for part in deltas) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


async def test_tools_leave_a_model_free_to_talk(client: openai.AsyncOpenAI) -> None:
    for choice in ("auto", "none"):
        answer = await chat(client, tools=[WEATHER], tool_choice=choice, temperature=0, max_tokens=20)
        assert answer.choices[0].message.content
        assert answer.choices[0].message.tool_calls is None
    plain = await chat(client, temperature=0, max_tokens=20)
    assert plain.choices[0].message.content == answer.choices[0].message.content


async def test_stop_strings_up_to_thirty_two(client: openai.AsyncOpenAI) -> None:
    stops = [f"#{at}#" for at in range(31)]
    answer = await chat(client, stop=[*stops, "capital"], temperature=0)
    assert answer.choices[0].message.content == "The "
    with pytest.raises(openai.BadRequestError, match="stop"):
        await chat(client, stop=[*stops, "a", "b"])


async def test_no_end_token_before_the_least_number_of_tokens(client: openai.AsyncOpenAI) -> None:
    plain = await chat(client, temperature=0)
    short = plain.usage.completion_tokens
    assert plain.choices[0].finish_reason == "stop"
    for least in (short - 1, short, short + 5):
        longer = await chat(client, temperature=0, extra_body={"min_tokens": least}, max_tokens=short + 5)
        assert longer.usage.completion_tokens >= least
        assert longer.choices[0].message.content.startswith(plain.choices[0].message.content)
    with pytest.raises(openai.BadRequestError, match="min_tokens is 9"):
        await chat(client, extra_body={"min_tokens": 9}, max_tokens=8)


async def test_a_form_has_the_least_number_of_tokens_too_where_it_can(client: openai.AsyncOpenAI) -> None:
    async def written(regex: str, least: int) -> tuple[str, int]:
        asked = {"regex": regex, "min_tokens": least}
        answer = await chat(client, temperature=0, extra_body=asked, max_tokens=30, logit_bias={"3": 100})
        return answer.choices[0].message.content, answer.usage.completion_tokens

    assert await written("[a-c]*", 0) == ("", 1), "the end is what the bias asks for"
    text, tokens = await written("[a-c]*", 12)
    assert (len(text) >= 6, tokens >= 12) == (True, True)
    assert (await written("ab", 12))[0] == "ab", "nothing else may follow"


async def test_a_template_is_given_variables_and_no_effort_is_one(client: openai.AsyncOpenAI) -> None:
    async def prompt_tokens(**body: Any) -> int:
        answer = await chat(client, max_tokens=1, **body)
        return int(answer.usage.prompt_tokens)

    plain = await prompt_tokens()
    variables = {"enable_thinking": False}
    terse = await prompt_tokens(extra_body={"chat_template_kwargs": variables})
    assert terse > plain
    assert await prompt_tokens(reasoning_effort="none") == terse
    on = {"chat_template_kwargs": {"enable_thinking": True}}
    assert await prompt_tokens(reasoning_effort="none", extra_body=on) == plain


async def test_a_repetition_penalty_changes_what_is_likeliest(client: openai.AsyncOpenAI) -> None:
    async def text(penalty: float) -> str:
        answer = await chat(client, max_tokens=40, temperature=0, extra_body={"repetition_penalty": penalty})
        return str(answer.choices[0].message.content)

    assert await text(1.0) == (await chat(client, max_tokens=40, temperature=0)).choices[0].message.content
    assert await text(2.0) != await text(1.0)


async def test_bias_penalties_and_seed(client: openai.AsyncOpenAI) -> None:
    tokenizer = Tokenizer.load(SHIPPED / "slipstream-chat")
    the = tokenizer.encode("The")[-1]
    banned = await chat(client, logit_bias={str(the): -100}, temperature=0)
    assert not banned.choices[0].message.content.startswith("The")
    loud: dict[str, Any] = {"frequency_penalty": 2, "presence_penalty": 2, "max_tokens": 60, "temperature": 0}
    words = (await chat(client, extra_body={"ignore_eos": True}, **loud)).choices[0].message.content
    plain = await chat(client, extra_body={"ignore_eos": True}, max_tokens=60, temperature=0)
    assert len(set(words)) >= len(set(plain.choices[0].message.content))
    assert words != plain.choices[0].message.content
    # What the model was never asked: of the capital of France it is sure at any temperature.
    nonsense = [{"role": "user", "content": "zq"}]
    first, second, *others = [
        (await chat(client, messages=nonsense, seed=seed, temperature=2)).choices[0].message.content
        for seed in (5, 5, 6, 7)
    ]
    assert first == second
    assert set(others) - {first}


async def test_log_probabilities_have_bytes_and_add_up(client: openai.AsyncOpenAI) -> None:
    answer = await chat(client, temperature=0, logprobs=True, top_logprobs=20)
    content = answer.choices[0].logprobs.content
    text = b"".join(bytes(entry.bytes) for entry in content).decode()
    assert answer.choices[0].finish_reason == "stop"
    assert text == answer.choices[0].message.content, "an end token is no part of it"
    for entry in content:
        assert len(entry.top_logprobs) == 20
        assert entry.top_logprobs[0].logprob == pytest.approx(entry.logprob)
        assert sum(2.718281828**top.logprob for top in entry.top_logprobs) <= 1.0001
    streamed = await chat(client, temperature=0, logprobs=True, top_logprobs=2, stream=True)
    names = [e.token for chunk in [c async for c in streamed] for e in (chunk.choices[0].logprobs or none()).content]
    assert names == [entry.token for entry in content]


async def continued(client: openai.AsyncOpenAI, **asked: Any) -> Any:
    return await client.completions.create(model="talker", **asked)


async def test_joined_tokens_are_the_text_of_a_completion(client: openai.AsyncOpenAI) -> None:
    prompt = list(Tokenizer.load(SHIPPED / "slipstream-chat").chat_ids(ASK))
    asked: dict[str, Any] = {"prompt": prompt, "temperature": 0, "max_tokens": 40}
    (whole,) = (await continued(client, logprobs=0, **asked)).choices
    assert (whole.finish_reason, "".join(whole.logprobs.tokens)) == ("stop", whole.text)
    values = [
        [(token, value)] for token, value in zip(whole.logprobs.tokens, whole.logprobs.token_logprobs, strict=True)
    ]
    assert [list(top.items()) for top in whole.logprobs.top_logprobs] == values, "the chosen one, as vLLM has it"
    streamed = await continued(client, logprobs=0, stream=True, **asked)
    told = [
        choice.logprobs.tokens for chunk in [c async for c in streamed] for choice in chunk.choices if choice.logprobs
    ]
    assert [token for tokens in told for token in tokens] == whole.logprobs.tokens


async def test_a_completion_keeps_its_first_space_and_a_message_has_none(tiny_model: Path, tmp_path: Path) -> None:
    """Fault: a completion of a SentencePiece vocabulary lost one space of its first line's indentation. An echoed
    prompt begins without the space that the vocabulary puts before it, and all offsets counted it."""
    folder = tmp_path / "pieces"
    shutil.copytree(tiny_model, folder)
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), "a", "▁", "▁b"]
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(dict(zip(names, range(len(names)), strict=True)), [], byte_fallback=True)
    )
    steps = tokenizers.decoders
    forms = tokenizers.normalizers
    backend.normalizer = forms.Sequence([forms.Prepend("▁"), forms.Replace(" ", "▁")])
    backend.decoder = steps.Sequence([steps.Replace("▁", " "), steps.ByteFallback(), steps.Fuse(), steps.Strip(" ", 1)])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    (folder / "generation_config.json").write_text("{}")
    always = {str(names.index("▁b")): 100}
    async with (
        served(model=str(folder)) as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key=TOKEN, max_retries=0) as client,
    ):
        completion = await client.completions.create(
            model="pieces", prompt="aa", max_tokens=2, logit_bias=always, echo=True, logprobs=0
        )
        message = await client.chat.completions.create(
            model="pieces", messages=[{"role": "user", "content": "aa"}], max_tokens=2, logit_bias=always
        )
    [choice] = completion.choices
    assert choice.text == "aa b b"
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == [" ", "a", "a", " b", " b"]
    assert choice.logprobs.text_offset == [0, 0, 1, 2, 4]
    assert message.choices[0].message.content == "b b"


async def test_the_chosen_token_is_reported_with_the_likeliest(client: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"prompt": "zq", "temperature": 1, "max_tokens": 40, "seed": 5}
    (choice,) = (await continued(client, logprobs=2, **asked)).choices
    sizes = {len(top) for top in choice.logprobs.top_logprobs}
    assert sizes == {2, 3}
    assert all(token in top for token, top in zip(choice.logprobs.tokens, choice.logprobs.top_logprobs, strict=True))


async def test_an_answer_without_a_token_has_a_list_without_one(client: openai.AsyncOpenAI) -> None:
    ends: dict[str, Any] = {"logit_bias": {"3": 100}, "temperature": 0}
    (choice,) = (await chat(client, logprobs=True, **ends)).choices
    assert (choice.message.content, choice.logprobs.content) == ("", [])
    prompt = {"prompt": "Hello"}
    (completion,) = (await continued(client, logprobs=1, **prompt, **ends)).choices
    assert (completion.text, completion.logprobs.tokens, completion.logprobs.top_logprobs) == ("", [], [])


def none() -> Any:
    return type("None_", (), {"content": []})


async def of_tiny(tiny: openai.AsyncOpenAI, **asked: Any) -> Any:
    return await tiny.completions.create(model="tiny", **asked)


async def test_the_prompts_own_log_probabilities(tiny: openai.AsyncOpenAI) -> None:
    ids = [5, 17, 400, 33, 2000, 9, 9, 1, 77, 310, 12]
    own = torch.log_softmax(naive_llama.logits(CONFIG, random_weights(CONFIG), ids), -1)
    expected = [float(own[at, id_]) for at, id_ in enumerate(ids[1:])]
    tokenizer = Tokenizer.load(SHIPPED / "slipstream-chat")
    for max_tokens in (0, 3, 0):  # the second and third find the prompt in the prefix cache
        answer = await of_tiny(tiny, prompt=ids, echo=True, logprobs=2, max_tokens=max_tokens, temperature=0)
        (choice,) = answer.choices
        logprobs = choice.logprobs
        assert logprobs.token_logprobs[0] is None
        assert logprobs.top_logprobs[0] is None
        assert logprobs.token_logprobs[1 : len(ids)] == pytest.approx(expected, abs=1e-3)
        assert len(logprobs.tokens) == len(logprobs.text_offset) == len(ids) + max_tokens
        best = max(logprobs.top_logprobs[1].values())
        assert best == pytest.approx(float(own[0].max()), abs=1e-3)
        assert choice.text.startswith(tokenizer.decode(ids))
        assert answer.usage.completion_tokens == max_tokens
        assert choice.finish_reason == "length"


async def test_prompt_log_probabilities_streamed_and_of_several_choices(tiny: openai.AsyncOpenAI) -> None:
    body: dict[str, Any] = {"prompt": list(range(5, 45)), "echo": True, "logprobs": 0, "max_tokens": 2, "seed": 1}
    whole = await of_tiny(tiny, n=3, **body)
    first = whole.choices[0].logprobs.token_logprobs
    for choice in whole.choices:
        assert choice.logprobs.token_logprobs[:40] == first[:40]
        assert len(choice.logprobs.token_logprobs) == 42
    chunks = [chunk async for chunk in await of_tiny(tiny, stream=True, **body)]
    values = [
        value for c in chunks for value in (c.choices[0].logprobs.token_logprobs if c.choices[0].logprobs else [])
    ]
    assert values == pytest.approx(first)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


async def test_best_of_keeps_the_likeliest_and_counts_all(tiny: openai.AsyncOpenAI) -> None:
    body: dict[str, Any] = {"prompt": [5, 6, 7], "max_tokens": 6, "seed": 3}
    every = await of_tiny(tiny, n=6, logprobs=0, **body)
    likelihoods = {
        choice.text: sum(value for value in choice.logprobs.token_logprobs if value is not None)
        for choice in every.choices
    }
    best = await of_tiny(tiny, n=2, best_of=6, **body)
    ranked = sorted(likelihoods, key=lambda text: likelihoods[text], reverse=True)
    assert [choice.text for choice in best.choices] == ranked[:2]
    assert [choice.index for choice in best.choices] == [0, 1]
    assert best.choices[0].logprobs is None
    assert best.usage.completion_tokens == 36


async def test_a_form_that_becomes_too_much_ends_with_an_error_and_not_as_if_it_were_done(
    engine: Served, session: aiohttp.ClientSession
) -> None:
    # a long easy part, so that the stream has begun when the grammar becomes too wide
    wide = " | ".join(f'"{number}" root' for number in range(4000))
    ebnf = f'root ::= {"easy " * 200}({wide})\neasy ::= "x" | "y"'
    body = {"model": "talker", "messages": ASK, "ebnf": ebnf, "max_tokens": 900}
    url = f"{engine.url}/v1/chat/completions"
    async with session.post(url, json=body) as answer:
        assert answer.status == 400
        assert "can no longer follow its format" in (await answer.json())["message"]
    async with session.post(url, json={**body, "stream": True}) as answer:
        assert answer.status == 200
        lines = [line for line in (await answer.text()).split("\n\n") if line]
    assert len(lines) > 10
    assert "can no longer follow its format" in json.loads(lines[-1][6:])["error"]["message"]
    async with session.post(url, json={**body, "ebnf": 'root ::= "x"'}) as answer:
        assert (await answer.json())["choices"][0]["message"]["content"] == "x"


CALLER = Caller("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222", "k")


@pytest.mark.parametrize(
    "prompt",
    [
        ChatPrompt(tuple(ASK), tools=(WEATHER, CLOSED_CLOCK), tool_choice="required", parallel_tool_calls=False),
        ChatPrompt(
            tuple(ASK),
            reasoning_effort="none",
            template_kwargs={"hint": "!"},
            response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA, "strict": True}},
        ),
        TextPrompt(((5, 6, 7),), echo=True),
    ],
)
async def test_what_the_driver_writes_is_what_the_engine_takes(
    engine: Served, session: aiohttp.ClientSession, prompt: ChatPrompt | TextPrompt
) -> None:
    sampling = GenerationSampling(
        200, seed=1, stop=("#",), logit_bias={"7": -1.0}, logprobs=2, frequency_penalty=0.1, presence_penalty=0.1,
        engine_parameters={"top_k": 500, "min_p": 0.0001, "repetition_penalty": 1.01, "stop_token_ids": [2_000]},
    )  # fmt: skip
    generation = Generation(f"req_{id(prompt):032x}", CALLER, Tier.CHAT, "m", prompt, sampling, cache_salt="s")
    asked = EmbeddedDriver().generate(generation, "talker")
    collector = Collector("id", "m", 1)
    async with session.request(asked.method, engine.url + asked.path, data=asked.body) as answer:
        assert answer.status == 200, await answer.text()
        collector.feed(await answer.read())
    assert collector.complete
    (choice,) = json.loads(collector.finish())["choices"]
    if isinstance(prompt, TextPrompt):
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert len(choice["logprobs"]["tokens"]) > 3
    elif prompt.tools:
        assert choice["finish_reason"] == "tool_calls"
        function = choice["message"]["tool_calls"][0]["function"]
        check_call(function["name"], function["arguments"])
    else:
        assert set(json.loads(choice["message"]["content"])) == {"town", "sure"}


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": value}}}


CHATS: list[tuple[dict[str, Any], str]] = [
    ({"foo": 1}, "foo"),
    ({"model": "other"}, "model"),
    ({"temperature": -1}, "temperature"),
    ({"max_tokens": "x"}, "max_tokens"),
    ({"max_tokens": 5000}, "max_tokens"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
    ({"response_format": {"type": "structural_tag"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (schema({"not": {}}), "response_format.json_schema"),
    (schema({"const": "x" * 3000}), "response_format.json_schema"),
    ({"response_format": {"type": "json_object"}, "regex": "a"}, "regex"),
    ({"response_format": {"type": "json_object"}, "tools": [CLOCK]}, "response_format"),
    ({"json_schema": "[1]"}, "json_schema"),
    ({"regex": "("}, "regex"),
    ({"ebnf": "root ::= ("}, "ebnf"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{**CLOCK, "x": 1}]}, "tools[0].x"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"frequency_penalty": 3}, "frequency_penalty"),
    ({"reasoning_effort": "low"}, "reasoning_effort"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": 1e-45}, "repetition_penalty"),
    ({"top_k": 10**400}, "top_k"),  # no float holds them, in the thread of all requests
    ({"priority": -(10**400)}, "priority"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"silent": True}}, "messages"),  # without a token the model cannot begin
    ({"store": True}, "store"),
    ({"max_completion_tokens": 3, "max_tokens": 3}, "max_completion_tokens"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"best_of": 2}, "best_of"),
    ({"structural_tag": "{}"}, "structural_tag"),
]
COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"best_of": 1, "n": 2}, "best_of"),
    ({"best_of": 3, "stream": True}, "best_of"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"echo": True, "suffix": "x"}, "echo"),
    ({"tools": [CLOCK]}, "tools"),
]


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        *(("chat/completions", {"messages": ASK, **change}, param) for change, param in CHATS),
        *(("completions", {"prompt": "x", **change}, param) for change, param in COMPLETIONS),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(
    engine: Served, session: aiohttp.ClientSession, path: str, change: dict[str, Any], param: str
) -> None:
    async with session.post(f"{engine.url}/v1/{path}", json={"model": "talker", **change}) as answer:
        error = await answer.json()
    assert answer.status == error["code"] == (404 if param == "model" else 400)
    assert (error["object"], error["param"]) == ("error", param)
    assert (change["model"] if param == "model" else param.rpartition(".")[2]) in error["message"]


async def test_requests_without_a_temperature_are_sampled_as_the_settings_say(tiny_model: Path) -> None:
    async with (
        served(model=str(tiny_model), name="tiny", temperature=0.0) as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key=TOKEN, max_retries=0) as client,
    ):

        async def text(**given: Any) -> str:
            made = await client.completions.create(model="tiny", prompt="a", max_tokens=12, **given)
            return str(made.choices[0].text)

        assert len({await text(), await text(), await text(temperature=0)}) == 1
        assert len({await text(temperature=1.5, seed=seed) for seed in range(6)}) > 1, "a request's own comes first"
