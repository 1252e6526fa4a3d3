"""A request becomes a Generation: limits fixed, prompts counted and known, a price named."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ContextTooLong, InvalidField, RequestError, UnsupportedField, WrongEndpoint
from contracts.generation import Tier
from contracts.prefix import BLOCK_TOKENS, chain_tokens, of_generation, root
from engines.tokenizer.fair_executor import FairExecutor, ResultT
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.prepared import Prepared, Target
from tests.gateway.wire.openai.preparing import (
    CALLER,
    HI,
    MODELS,
    call_with,
    chat,
    complete,
    cost_tokens,
    messages_of,
    target,
)
from tests.prefix_chains import length, shared_blocks
from tests.sglang.fleet import with_tools_template


async def test_the_default_limit_is_cut_to_what_the_context_leaves(chat_tokenizer: Tokenizer) -> None:
    used = len(chat_tokenizer.chat_ids(HI))
    for context, expected in ((100, 20), (used + 20, 20), (used + 19, 19), (used + 1, 1)):
        prepared = await chat(target(chat_tokenizer, context_tokens=context))
        assert (prepared.prompt_tokens, prepared.exact) == (used, True)
        assert prepared.generation.sampling.max_tokens == expected


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_that_is_asked_for_is_kept_or_refused_never_cut(chat_tokenizer: Tokenizer, field: str) -> None:
    used = len(chat_tokenizer.chat_ids(HI))
    where = target(chat_tokenizer, context_tokens=used + 30)
    for asked in (1, 29, 30):
        assert (await chat(where, **{field: asked})).generation.sampling.max_tokens == asked
    with pytest.raises(ContextTooLong) as refused:
        await chat(where, **{field: 31})
    assert refused.value.param == field
    assert f"{used + 30} tokens" in refused.value.message
    assert f"{used} tokens and 31 are requested as output" in refused.value.message


async def test_a_prompt_that_leaves_no_room_is_itself_at_fault(chat_tokenizer: Tokenizer) -> None:
    used = len(chat_tokenizer.chat_ids(HI))
    for context in (used, used - 1):
        with pytest.raises(ContextTooLong) as refused:
            await chat(target(chat_tokenizer, context_tokens=context))
        assert refused.value.param == "prompt"


async def test_two_limits_at_once_are_refused(chat_tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidField) as refused:
        await chat(target(chat_tokenizer), max_tokens=1, max_completion_tokens=1)
    assert refused.value.param == "max_completion_tokens"


async def test_completions_have_openais_default_limit(code_tokenizer: Tokenizer) -> None:
    assert (await complete(target(code_tokenizer))).generation.sampling.max_tokens == 16
    used = code_tokenizer.count("x = ")
    small = await complete(target(code_tokenizer, context_tokens=used + 7))
    assert small.generation.sampling.max_tokens == 7


async def test_the_longest_prompt_decides_about_the_context_and_all_about_the_price(code_tokenizer: Tokenizer) -> None:
    prompts = ["a", "some words more than that", "b c"]
    counts = [code_tokenizer.count(prompt) for prompt in prompts]
    where = target(code_tokenizer, context_tokens=max(counts) + 5)
    prepared = await complete(where, prompts, max_tokens=5, n=2)
    assert prepared.prompt_tokens == sum(counts)
    assert prepared.generation.choices == 6
    assert cost_tokens(prepared) == sum(counts) + 6 * 5
    with pytest.raises(ContextTooLong):
        await complete(where, prompts, max_tokens=6, n=2)


async def test_the_price_of_a_chat_is_the_prompt_once_and_the_limit_for_every_choice(chat_tokenizer: Tokenizer) -> None:
    prepared = await chat(target(chat_tokenizer), n=3, max_tokens=7)
    assert cost_tokens(prepared) == len(chat_tokenizer.chat_ids(HI)) + 3 * 7


async def test_without_a_tokenizer_counts_are_estimates_and_the_engine_decides_what_fits() -> None:
    where = target(None, "openai", context_tokens=50)
    prepared = await chat(where, [{"role": "user", "content": "word " * 100}], max_tokens=40)
    assert not prepared.exact
    assert prepared.prompt_tokens > 100
    assert prepared.generation.sampling.max_tokens == 40
    assert (await complete(where, "word " * 100, max_tokens=500)).generation.sampling.max_tokens == 50


@pytest.mark.parametrize("prompt", ["x", "naïve 😀 " * 50, "\n\n\n\t" * 40, "𒀀𒀁" * 30, "", "<|endoftext|>" * 9])
async def test_what_budgets_reserve_is_never_less_than_any_tokenizer_counts(
    prompt: str, chat_tokenizer: Tokenizer, code_tokenizer: Tokenizer
) -> None:
    where = target(None, "openai", context_tokens=4_096)
    text = await complete(where, prompt, suffix=prompt)
    ids = await complete(target(None, "embedded"), [[5] * 30, [6] * 20], max_tokens=2)
    for tokenizer in (chat_tokenizer, code_tokenizer):
        assert text.prompt_tokens_bound >= 2 * len(tokenizer.encode(prompt))
    assert text.prompt_tokens_bound >= len(code_tokenizer.fill_ids(prompt, prompt))
    assert ids.prompt_tokens_bound >= 50
    conversation = await chat(where, [{"role": "user", "content": prompt or "."}])
    assert conversation.prompt_tokens_bound >= 4_096  # no engine takes more of it


async def test_with_a_tokenizer_budgets_reserve_what_it_counts(chat_tokenizer: Tokenizer) -> None:
    prepared = await chat(target(chat_tokenizer))
    assert prepared.prompt_tokens_bound == prepared.prompt_tokens == len(chat_tokenizer.chat_ids(HI))


@pytest.mark.parametrize("driver", ["embedded", "sglang", "openai"])
async def test_pictures_are_reserved_as_the_whole_context(tmp_path: Path, driver: str) -> None:
    """The engine alone counts their tokens: to a template each is a placeholder."""
    source = with_tools_template(MODELS / "slipstream-chat", tmp_path)
    (source / "chat_template.jinja").unlink(missing_ok=True)
    (source / "chat_template.jinja").write_text(
        "{% for m in messages %}{% for part in m.content %}"
        "{{ '<image>' if part.type == 'image_url' else part.text }}{% endfor %}{% endfor %}"
    )
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "compare"}, *[picture] * 8]
    where = target(Tokenizer.load(source), driver, context_tokens=4_096)
    prepared = await chat(where, [{"role": "user", "content": parts}])
    assert prepared.prompt_tokens < 100
    assert prepared.prompt_tokens_bound == 4_096
    assert not prepared.exact


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
WITHOUT_TOOLS = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@pytest.fixture
def toolless(tmp_path: Path) -> Tokenizer:
    """A model whose template has no place for tools."""
    return Tokenizer.load(with_tools_template(MODELS / "slipstream-chat", tmp_path, WITHOUT_TOOLS))


@pytest.mark.parametrize("fields", [{"tools": [TOOL]}, {"response_format": SCHEMA}, {"reasoning_effort": "low"}])
async def test_what_an_engine_may_add_to_the_prompt_by_itself_is_reserved_as_the_whole_context(
    toolless: Tokenizer, fields: dict[str, Any]
) -> None:
    for driver in ("sglang", "openai"):
        prepared = await chat(target(toolless, driver, context_tokens=4_096), **fields)
        assert prepared.prompt_tokens_bound == 4_096
    ours = await chat(target(toolless, "embedded", context_tokens=4_096), **fields)
    assert ours.prompt_tokens_bound == ours.prompt_tokens, "it renders the same template"


async def test_tools_that_the_template_writes_are_reserved_as_counted(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(with_tools_template(MODELS / "slipstream-chat", tmp_path))
    prepared = await chat(target(tokenizer, "sglang", context_tokens=4_096), tools=[TOOL])
    assert prepared.prompt_tokens_bound == prepared.prompt_tokens == len(tokenizer.chat_ids(HI, [TOOL]))


# What cannot fit, and whose turn it is


@pytest.mark.parametrize("fields", [{}, {"suffix": "x"}])
async def test_texts_whose_bytes_cannot_fit_never_reach_a_thread(
    code_tokenizer: Tokenizer, fields: dict[str, Any]
) -> None:
    class Closed:
        async def run(self, *_: Any) -> Any:
            raise AssertionError("took a turn")

    where = target(code_tokenizer, context_tokens=100, fim={"window": False})
    assert where.tokenizer is not None
    where.tokenizer._executor = Closed()  # type: ignore[assignment]
    assert code_tokenizer.longest_token_bytes is not None
    with pytest.raises(ContextTooLong) as refused:
        await complete(where, "é" * (50 * code_tokenizer.longest_token_bytes + 1), **fields)
    assert "context is 100 tokens" in refused.value.message
    assert f"{100 * code_tokenizer.longest_token_bytes + 2} bytes" in refused.value.message
    with pytest.raises(AssertionError, match="took a turn"):
        await complete(where, "x" * (100 * code_tokenizer.longest_token_bytes - 1), **fields)


@pytest.mark.parametrize("prompt", [[1] * 101, [[1], [1] * 101]])
async def test_token_ids_that_cannot_fit_are_refused_by_their_number(code_tokenizer: Tokenizer, prompt: Any) -> None:
    with pytest.raises(ContextTooLong, match="The prompt has 101 tokens"):
        await complete(target(code_tokenizer, context_tokens=100), prompt)


async def test_long_prompts_take_their_organizations_turn_all_texts_as_one(
    chat_tokenizer: Tokenizer, code_tokenizer: Tokenizer
) -> None:
    turns: list[tuple[str, int]] = []

    class Recorded(FairExecutor):
        async def run(self, tenant: str, size_bytes: int, work: Callable[[], ResultT]) -> ResultT:
            turns.append((tenant, size_bytes))
            return await super().run(tenant, size_bytes, work)

    async def talk(where: Target, texts: list[str]) -> Prepared:
        return await chat(where, [{"role": "user", "content": text} for text in texts])

    async def fill(where: Target, texts: list[str]) -> Prepared:
        before, after = texts
        return await complete(where, before, suffix=after)

    executor = Recorded()
    numbers = itertools.count()
    for tokenizer, ask in ((chat_tokenizer, talk), (code_tokenizer, complete), (code_tokenizer, fill)):
        where = target(tokenizer, context_tokens=100_000)
        assert where.tokenizer is not None
        where.tokenizer._executor = executor
        long = ["".join(f"{next(numbers):05}w in " for _ in range(300)) for _ in range(2)]  # none has been sent
        await ask(where, [text[:1_500] for text in long])
        assert turns == []
        await ask(where, long)
        ((tenant, size_bytes),) = turns
        assert tenant == CALLER.organization_id
        assert 6_000 <= size_bytes < 6_200
        turns.clear()
        await ask(where, long)  # it is known now
        assert turns == []
    executor.close()


async def test_arguments_nested_too_deeply_are_refused_whichever_engine_serves(chat_tokenizer: Tokenizer) -> None:
    for driver in ("embedded", "sglang", "openai"):
        with pytest.raises(InvalidField, match="nested"):
            await chat(target(chat_tokenizer, driver), [*HI, call_with("[" * 1_200 + "]" * 1_200)])


# What is rebuilt


async def test_messages_are_rebuilt_not_forwarded(chat_tokenizer: Tokenizer) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "assistant", "content": "a", "refusal": None, "annotations": [], "audio": None, "function_call": None},
        *HI,
    ]
    prepared = await chat(target(chat_tokenizer), messages)
    assert messages_of(prepared) == (
        {"role": "system", "content": "be brief"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "hi"},
    )


@pytest.mark.parametrize(
    "refused",
    [
        {"refusal": "I will not."},
        {"content": None, "refusal": "I will not."},
        {"content": [{"type": "refusal", "refusal": "I will not."}]},
    ],
)
async def test_a_refusal_is_what_the_assistant_said(chat_tokenizer: Tokenizer, refused: dict[str, Any]) -> None:
    prepared = await chat(target(chat_tokenizer), [*HI, {"role": "assistant", **refused}, *HI])
    said = messages_of(prepared)[1]
    assert said in (
        {"role": "assistant", "content": "I will not."},
        {"role": "assistant", "content": [{"type": "text", "text": "I will not."}]},
    )
    spoken = await chat(target(chat_tokenizer), [*HI, {"role": "assistant", "content": "I will not."}, *HI])
    assert prepared.prompt_tokens == spoken.prompt_tokens


async def test_the_generation_says_for_whom_and_with_whose_cache(chat_tokenizer: Tokenizer) -> None:
    generation = (await chat(target(chat_tokenizer, name="public", tier=Tier.AUTOCOMPLETE))).generation
    assert (generation.request_id, generation.caller, generation.cache_salt) == ("req_1", CALLER, "salt")
    assert (generation.model, generation.tier) == ("public", Tier.AUTOCOMPLETE), "the alias asked for is not passed on"


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("http://127.0.0.1/secret", UnsupportedField, "does not download images"),
        ("data:", InvalidField, "'data:'. It must be data:<type>;base64,<data>"),
        ("data:text/html," + "x" * 9_000, InvalidField, "image/jpeg, image/png, image/gif, image/webp."),
    ],
)
async def test_pictures_by_address_and_other_data_are_refused_where_they_stand(
    chat_tokenizer: Tokenizer, url: str, kind: type[RequestError], said: str
) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": url}}]
    with pytest.raises(kind) as refused:
        await chat(target(chat_tokenizer), [*HI, {"role": "user", "content": parts}])
    assert refused.value.param == "messages[1].content[1].image_url.url"
    assert said in refused.value.message
    assert len(refused.value.message) < 500


async def test_a_code_model_does_not_chat(code_tokenizer: Tokenizer) -> None:
    with pytest.raises(WrongEndpoint) as refused:
        await chat(target(code_tokenizer))
    assert refused.value.param == "model"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"store": True}, "store"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
    ],
)
async def test_contradictions_and_what_is_not_offered_are_refused_by_name(
    chat_tokenizer: Tokenizer, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises((InvalidField, UnsupportedField)) as refused:
        await chat(target(chat_tokenizer), **fields)
    assert refused.value.param == param


async def test_best_of_is_generated_and_reserved_in_full(code_tokenizer: Tokenizer) -> None:
    same = (await complete(target(code_tokenizer), n=2, best_of=2, stream=True)).generation
    assert (same.sampling.n, same.sampling.best) == (2, None)
    prepared = await complete(target(code_tokenizer), ["a", "b"], n=2, best_of=5, max_tokens=7)
    assert (prepared.generation.sampling.n, prepared.generation.sampling.best) == (5, 2)
    assert prepared.generation.choices == 10
    assert cost_tokens(prepared) == prepared.prompt_tokens + 10 * 7


@pytest.mark.parametrize(
    "fields", [{"n": 3, "best_of": 2}, {"best_of": 2, "stream": True}, {"best_of": 9, "prompt": ["a", "b"]}]
)
async def test_a_best_of_that_cannot_be_is_refused_by_name(code_tokenizer: Tokenizer, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as refused:
        await complete(target(code_tokenizer), **fields)
    assert refused.value.param == "best_of"


async def test_sampling_is_what_was_asked_for(chat_tokenizer: Tokenizer) -> None:
    fields = {"temperature": 0, "top_p": 0.5, "seed": 7, "frequency_penalty": 1, "presence_penalty": -1}
    prepared = await chat(
        target(chat_tokenizer), stop="END", logit_bias={"5": 1}, logprobs=True, top_logprobs=3, stream=True,
        stream_options={"include_usage": True}, **fields,
    )  # fmt: skip
    sampling = prepared.generation.sampling
    assert {name: getattr(sampling, name) for name in fields} == fields
    assert (sampling.stop, sampling.logit_bias, sampling.logprobs) == (("END",), {"5": 1}, 3)
    assert prepared.generation.stream
    assert prepared.generation.include_usage
    assert (await chat(target(chat_tokenizer), stop=["a", "b"])).generation.sampling.stop == ("a", "b")
    assert (await chat(target(chat_tokenizer), logprobs=True)).generation.sampling.logprobs == 0
    assert (await chat(target(chat_tokenizer))).generation.sampling.logprobs is None


# What the router knows a prompt by


async def test_a_conversation_is_known_by_the_ids_that_the_engine_will_see(chat_tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "What is the capital of France? " * 30}]
    prepared = await chat(target(chat_tokenizer, context_tokens=4_000), messages)
    ids = chat_tokenizer.chat_ids(messages)
    assert prepared.chain == chain_tokens(root("m", salt="salt"), ids)
    assert length(prepared.chain) == len(ids) // BLOCK_TOKENS > 1


async def test_what_a_template_leaves_out_is_no_part_of_what_a_prompt_is_known_by(toolless: Tokenizer) -> None:
    """No engine computes or caches it."""
    messages = [{"role": "user", "content": "What is the capital of France? " * 30}]
    function = {"name": "look_up", "description": "Looks something up. " * 40, "parameters": {"type": "object"}}
    where = target(toolless, context_tokens=4_000)
    plain, with_tools = (
        await chat(where, messages),
        await chat(where, messages, tools=[{"type": "function", "function": function}]),
    )
    assert plain.chain == with_tools.chain


@pytest.mark.parametrize(
    ("driver", "choice", "counted"),
    [
        ("sglang", "auto", 2), ("sglang", "required", 2), ("sglang", "none", 0), ("sglang", "named", 1),
        ("embedded", "none", 0), ("embedded", "named", 2), ("openai", "none", 2),
    ],
)  # fmt: skip
async def test_only_tools_that_the_engine_puts_into_the_prompt_are_counted(
    tmp_path: Path, driver: str, choice: str, counted: int
) -> None:
    """tests/sglang asks the real one."""
    tokenizer = Tokenizer.load(with_tools_template(MODELS / "slipstream-chat", tmp_path))
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("first", "second")]
    asked: Any = {"type": "function", "function": {"name": "first"}} if choice == "named" else choice
    prepared = await chat(target(tokenizer, driver, context_tokens=4_000), tools=tools, tool_choice=asked)
    assert prepared.prompt_tokens == len(tokenizer.chat_ids(HI, tools[:counted] or None))


async def test_without_a_tokenizer_a_conversation_is_known_by_its_bytes() -> None:
    prepared = await chat(target(None, "openai"), [{"role": "user", "content": "What is the capital of France? " * 30}])
    assert prepared.chain.kind == "bytes"
    assert length(prepared.chain) > 1


async def test_conversations_that_differ_in_an_image_alone_are_not_taken_for_the_same(
    chat_tokenizer: Tokenizer,
) -> None:
    def pictured(data: str) -> list[Any]:
        url = {"url": "data:image/png;base64," + data * 300}
        return [
            {"role": "user", "content": [{"type": "image_url", "image_url": url}, {"type": "text", "text": "w " * 300}]}
        ]

    where = target(None, "openai", context_tokens=4_000)
    one, other = await chat(where, pictured("a")), await chat(where, pictured("b"))
    assert shared_blocks(one.chain, other.chain) == 0
    ids = chat_tokenizer.encode("w " * 300)
    assert shared_blocks(of_generation(one.generation, ids), of_generation(other.generation, ids)) == 0
