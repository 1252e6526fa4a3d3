"""Engines' own parameters: taken by the drivers that have them, with their ranges, and refused by name elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from openai.types.shared import ReasoningEffort

from contracts.desired_state import Pool
from contracts.errors import InvalidField, InvalidJson, RequestError, SpecialToken, UnknownField, UnsupportedField
from contracts.generation import ChatPrompt
from engines.drivers import registry as drivers
from engines.drivers.base import strictest
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.openai.decode import Decoder
from gateway.wire.openai.engine_parameters import engine_parameters
from gateway.wire.prepared import Prepared, Target
from tests.engines.test_tokenizer import write_model
from tests.gateway.wire.openai.preparing import chat, complete, target
from tests.gateway.wire.responses import answers as responses

SENT: dict[str, Any] = {
    "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1, "stop_token_ids": [7],
}  # fmt: skip
TAKING = ("embedded", "sglang", "tensorrt_llm", "vllm")
THINKING = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}<no thought>{% endif %}"
)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("thinker")
    return Tokenizer.load(write_model(folder, [], {"chat_template": THINKING}))


def sent(prepared: Prepared, where: Target, pool: Pool | None = None) -> dict[str, Any]:
    """The engine's request body."""
    driver = drivers.of_pool(pool or Pool("p", where.capabilities.dialects[0]))
    body: dict[str, Any] = msgspec.json.decode(driver.generate(prepared.generation, "engine-model").body)
    return body


@pytest.mark.parametrize("driver", TAKING)
async def test_they_reach_the_engines_that_have_them(driver: str, thinker: Tokenizer) -> None:
    where = target(thinker, driver)
    body = sent(await chat(where, **SENT), where)
    assert {name: body.get(name) for name in SENT} == SENT
    if driver != "tensorrt_llm":  # it answers chats alone
        body = sent(await complete(where, **SENT), where)
        assert {name: body.get(name) for name in SENT} == SENT


@pytest.mark.parametrize(
    ("driver", "field"),
    [
        ("vllm", {"skip_special_tokens": False}),
        ("vllm", {"include_stop_str_in_output": True}),
        ("vllm", {"include_reasoning": False}),
        ("sglang", {"skip_special_tokens": False}),
        ("sglang", {"separate_reasoning": False}),
        ("sglang", {"no_stop_trim": True}),
        ("tensorrt_llm", {"spaces_between_special_tokens": False}),
    ],
)
async def test_what_one_engine_alone_has_is_refused_by_name_for_the_others(driver: str, field: dict[str, Any]) -> None:
    where, (name,) = target(None, driver), field
    assert sent(await chat(where, **field), where)[name] == field[name]
    for other in drivers.names():
        if name in drivers.get(other).capabilities.parameters:
            continue
        with pytest.raises(
            UnsupportedField, match=rf"\(driver {other}\). Leave it out. If the engines know it, an operator"
        ) as refused:
            await chat(target(None, other), **field)
        assert refused.value.param == name


@pytest.mark.parametrize("driver", TAKING)
@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"top_k": 2.5}, "an integer of at least 1"),
        ({"top_k": -2}, "an integer of at least 1"),
        ({"min_p": 1.5}, "a number from 0 to 1"),
        ({"repetition_penalty": 0}, "a number from 0.01 to 2"),
        ({"repetition_penalty": 1e-45}, "a number from 0.01 to 2"),
        ({"repetition_penalty": "high"}, "a number from 0.01 to 2"),
        ({"stop_token_ids": [-1]}, "at most 64 token ids"),
        ({"stop_token_ids": list(range(65))}, "at most 64 token ids"),
        ({"stop_token_ids": [10**8]}, "is outside this model's vocabulary of"),
    ],
)
async def test_a_value_out_of_range_is_refused_here(
    driver: str, field: dict[str, Any], words: str, thinker: Tokenizer
) -> None:
    with pytest.raises(InvalidField, match=words) as refused:
        await chat(target(thinker, driver), **field)
    assert refused.value.param == next(iter(field))


async def test_ids_that_nobody_can_check_do_not_reach_an_engine_that_they_would_end() -> None:
    with pytest.raises(UnsupportedField, match="no tokenizer to check the ids"):
        await chat(target(None, "sglang"), stop_token_ids=[7])
    where = target(None, "vllm")
    assert sent(await chat(where, stop_token_ids=[7]), where)["stop_token_ids"] == [7]


async def test_a_pool_passes_what_it_names_and_what_its_driver_has() -> None:
    pool = Pool("p", "openai", engine_parameters=("typical_p", "verbosity", "top_k", "grammar"))
    where = msgspec.structs.replace(target(None, "openai"), capabilities=drivers.of_pool(pool).capabilities)
    asked: dict[str, Any] = {"typical_p": 0.9, "verbosity": "low", "grammar": {"root": ["x", 1]}, "top_k": 5}
    body = sent(await chat(where, **asked), where, pool)
    assert {name: body.get(name) for name in asked} == asked
    with pytest.raises(InvalidField, match="an integer of at least 1"):
        await chat(where, top_k="many")
    with pytest.raises(UnsupportedField, match="driver openai"):
        await chat(where, min_p=0.1)
    assert "typical_p" not in drivers.get("openai").capabilities.parameters, "no other pool's driver has changed"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b'{"a": "\xff"}', "not valid JSON in UTF-8"),
        (b'{"\xff": 1}', "not valid JSON in UTF-8"),
        (b'"\\ud800\\u0041"', "not valid JSON"),
        (b"[1,]", "not valid JSON"),
    ],
)
async def test_a_value_that_the_body_decoder_skipped_is_still_refused_as_the_clients_fault(
    given: bytes, words: str
) -> None:
    pool = Pool("p", "openai", engine_parameters=("grammar",))
    where = msgspec.structs.replace(target(None, "openai"), capabilities=drivers.of_pool(pool).capabilities)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "grammar": ' + given + b"}"
    with pytest.raises((InvalidField, InvalidJson), match=words):
        engine_parameters(Decoder().chat(body), where)


async def test_of_two_pools_both_must_take_it() -> None:
    both = strictest(drivers.get("sglang").capabilities, drivers.get("openai").capabilities)
    where = msgspec.structs.replace(target(None, "sglang"), capabilities=both)
    with pytest.raises(UnsupportedField, match=r"\(driver openai and sglang\)"):
        await chat(where, top_k=5)


@pytest.mark.parametrize(
    "name",
    ["priority", "cache_salt", "extra_key", "rid", "bootstrap_room", "lora_path", "return_hidden_states", "n_predict",
     "custom_logit_processor", "kv_transfer_params", "chat_template", "routed_dp_rank", "use_beam_search"],
)  # fmt: skip
@pytest.mark.parametrize("driver", drivers.names())
async def test_what_steers_an_engine_is_never_taken(driver: str, name: str) -> None:
    for fields in ({name: 3}, {"extra_body": {name: 3}}):
        with pytest.raises(UnknownField) as refused:
            await chat(target(None, driver), **fields)
        assert refused.value.param == name


async def test_they_may_stand_in_extra_body_and_fields_of_this_api_may_not() -> None:
    where = target(None, "vllm")
    body = sent(await chat(where, extra_body={"top_k": 9, "min_p": 0.5}, min_p=0.1), where)
    assert (body["top_k"], body["min_p"]) == (9, 0.1)
    assert "extra_body" not in body
    with pytest.raises(UnsupportedField, match="write 'temperature' at the top of the body"):
        await chat(where, extra_body={"temperature": 0})
    assert (await chat(where, extra_body={})).generation == (await chat(where)).generation


async def test_many_fields_at_a_time_are_refused_at_once() -> None:
    with pytest.raises(UnknownField):
        await chat(target(None, "vllm"), **{f"field_{at}": 1 for at in range(65)})


async def test_thinking_is_switched_off_by_request_by_effort_and_by_model(thinker: Tokenizer) -> None:
    where = target(thinker, "vllm")
    off = target(thinker, "vllm", chat_template_kwargs={"enable_thinking": False})
    plain = await chat(where)
    for prepared in (
        await chat(where, chat_template_kwargs={"enable_thinking": False}),
        await chat(where, reasoning_effort="none"),
        await chat(off),
    ):
        assert sent(prepared, where)["chat_template_kwargs"]["enable_thinking"] is False
        assert prepared.prompt_tokens == plain.prompt_tokens + thinker.count("<no thought>"), "counted as rendered"
    assert "chat_template_kwargs" not in sent(plain, where)
    on = await chat(off, chat_template_kwargs={"enable_thinking": True, "thinking_budget": 3})
    assert sent(on, off)["chat_template_kwargs"] == {"enable_thinking": True, "thinking_budget": 3}
    assert on.prompt_tokens == plain.prompt_tokens
    explicit = await chat(where, reasoning_effort="none", chat_template_kwargs={"enable_thinking": True})
    assert sent(explicit, where)["chat_template_kwargs"]["enable_thinking"] is True


async def test_an_effort_is_a_variable_only_where_engines_take_some() -> None:
    where = target(None, "openai")
    body = sent(await chat(where, reasoning_effort="none"), where)
    assert (body["reasoning_effort"], "chat_template_kwargs" in body) == ("none", False)


@pytest.mark.parametrize("effort", get_args(get_args(ReasoningEffort)[0]))
async def test_every_effort_of_openais_sdk_reaches_the_engine_that_knows_its_own(effort: str) -> None:
    where = target(None, "sglang")
    assert sent(await chat(where, reasoning_effort=effort), where)["reasoning_effort"] == effort
    response = await responses.prepared(reasoning={"effort": effort})
    assert sent(response, responses.TARGET)["reasoning_effort"] == effort


@pytest.mark.parametrize(
    "kwargs",
    [
        {"messages": "x"},
        {"chat_template": "{{ x }}"},
        {"bos_token": "x"},
        {"add_generation_prompt": False},
        {"return_dict": True},
        {"return_assistant_tokens_mask": True},
        {"self": "x"},
        {"namespace": 1},
        {"a b": 1},
        {"x": "y" * 257},
        {"x": {"nested": 1}},
        {f"x{at}": 1 for at in range(17)},
        "text",
    ],
)
async def test_a_template_is_given_no_more_than_its_own_variables(kwargs: Any, thinker: Tokenizer) -> None:
    for where in (target(thinker, "vllm"), target(None, "sglang")):
        with pytest.raises(InvalidField) as refused:
            await chat(where, chat_template_kwargs=kwargs)
        assert refused.value.param == "chat_template_kwargs"


async def test_a_variable_makes_no_control_token() -> None:
    shipped = Tokenizer.load(Path(__file__).parents[4] / "models" / "slipstream-chat")
    with pytest.raises(SpecialToken) as refused:
        await chat(target(shipped, "vllm"), chat_template_kwargs={"name": "<|assistant|>"})
    assert refused.value.param == "chat_template_kwargs"


async def test_a_template_belongs_to_conversations() -> None:
    with pytest.raises(UnsupportedField, match="belongs to POST /v1/chat/completions"):
        await complete(target(None, "vllm"), chat_template_kwargs={"enable_thinking": False})


async def test_nothing_raises_the_output_limit(thinker: Tokenizer) -> None:
    """`ignore_eos` is bounded by what was reserved, and no parameter's value is another limit."""
    where = target(thinker, "sglang")
    prepared = await chat(where, **SENT, ignore_eos=True, max_tokens=9)
    body = sent(prepared, where)
    assert (body["max_tokens"], body["min_tokens"]) == (9, 9)
    for name in ("max_new_tokens", "max_length", "n_predict", "best_of"):
        with pytest.raises(RequestError) as refused:
            await chat(where, **{name: 99})
        assert refused.value.param == name


async def test_leading_instructions_are_one_message() -> None:
    where = target(None, "vllm")
    messages = [
        {"role": "system", "content": "a"},
        {"role": "developer", "content": "b"},
        {"role": "system", "content": "c", "name": "n"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "later"},
    ]
    prompt = (await chat(where, messages)).generation.prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages == ({"role": "system", "content": "a\n\nb\n\nc"}, *messages[3:])
    parts: list[Any] = [{"type": "text", "text": "b"}]
    prompt = (await chat(where, [messages[0], {"role": "system", "content": parts}, messages[3]])).generation.prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages[0]["content"] == [{"type": "text", "text": "a"}, *parts]


async def test_a_strict_template_takes_several_and_an_error_names_the_clients_own_message(tmp_path: Path) -> None:
    strict = (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{{ m.role }}: {{ m.content }};"
        "{% endfor %}"
    )
    control = {"id": 3, "content": "<|x|>", "special": True}
    where = target(Tokenizer.load(write_model(tmp_path, [control], {"chat_template": strict})), "vllm")
    system, user = {"role": "system", "content": "a"}, {"role": "user", "content": "hi"}
    one = await chat(where, [{"role": "system", "content": "a\n\na"}, user])
    assert (await chat(where, [system, {**system, "role": "developer"}, user])).prompt_tokens == one.prompt_tokens
    with pytest.raises(InvalidField, match="System message must be at the beginning"):
        await chat(where, [user, system])
    with pytest.raises(SpecialToken) as refused:
        await chat(where, [system, system, {"role": "user", "content": "<|x|>"}])
    assert refused.value.param == "messages[2].content"


def test_the_guides_table_is_what_drivers_take() -> None:
    page = (Path(__file__).parents[4] / "docs" / "guides" / "real-engines.md").read_text()
    table = page.partition("## Engine parameters")[2].partition("\n\nDriver")[0]
    head, _, *rows = [line for line in table.splitlines() if line.startswith("|")]
    columns = [cell.strip(" `") for cell in head.split("|")[2:-2]]
    said: dict[str, set[str]] = {name: set() for name in columns}
    for row in rows:
        names, *cells = row.split("|")[1:-2]
        for column, cell in zip(columns, cells, strict=True):
            if cell.strip() == "yes":
                said[column] |= {name.strip(" `") for name in names.split(",")}
    own = {"min_tokens", "ignore_eos"}
    for name in columns:
        capabilities = drivers.get(name).capabilities
        assert said[name] == set(capabilities.parameters) | (own if capabilities.min_tokens else set()), name
    assert not drivers.get("openai").capabilities.parameters
