"""Decoding a client's body: what is taken, and how a refusal names the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidField, InvalidJson, MissingField, RequestError, UnknownField, UnsupportedField
from engines.drivers.parameters import KNOWN
from gateway.wire.decode import decode
from gateway.wire.openai.decode import Decoder
from gateway.wire.openai.engine_parameters import engine_parameters
from tests.gateway.wire.openai.preparing import target

ENGINE_PRIVATE = """
    bootstrap_host bootstrap_port bootstrap_room cache_salt chat_template_kwargs continue_final_message
    custom_logit_processor custom_params data_parallel_rank disagg_prefill_dp_rank ebnf extra_key
    input_embeds json_schema kv_transfer_params lora_path min_p no_stop_trim priority regex
    repetition_penalty return_hidden_states return_cached_tokens_details rid routed_dp_rank separate_reasoning
    session_params skip_special_tokens stop_regex stop_token_ids stream_reasoning top_k use_beam_search guided_json
    guided_regex guided_grammar truncate_prompt_tokens add_special_tokens spaces_between_special_tokens
    prompt_logprobs allowed_token_ids bad_words documents chat_template return_tokens_as_token_ids
""".split()
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return Decoder()


PLAIN = target(None, "openai")
"""Its engines take no parameters of their own."""


def chat(decoder: Decoder, **more: Any) -> Any:
    request = decoder.chat(msgspec.json.encode({"model": "m", "messages": MESSAGES, **more}))
    engine_parameters(request, PLAIN)
    return request


def completion(decoder: Decoder, **more: Any) -> Any:
    request = decoder.completion(msgspec.json.encode({"model": "m", "prompt": "x", **more}))
    engine_parameters(request, PLAIN)
    return request


@pytest.mark.parametrize("name", [*ENGINE_PRIVATE, "top_a", "verbose", "models", "image_urls"])
def test_engine_private_fields_are_refused_by_name_and_nothing_of_another_meaning_is_proposed(
    decoder: Decoder, name: str
) -> None:
    values: list[Any] = [2, "x", {"a": 1}]
    for ask in (chat, completion):
        for value in values:
            with pytest.raises(UnsupportedField if name in KNOWN else UnknownField) as caught:
                ask(decoder, **{name: value})
            assert caught.value.param == name
            assert name in caught.value.message
            meant = caught.value.message.partition("Did you mean '")[2].rstrip("'?")
            assert meant == ("model" if name == "models" else "")


def test_private_fields_inside_messages_and_options_are_refused_too(decoder: Decoder) -> None:
    with pytest.raises(UnknownField) as caught:
        chat(decoder, messages=[{"role": "user", "content": "hi", "cache_salt": "x"}])
    assert caught.value.param == "messages[0].cache_salt"
    with pytest.raises(UnknownField) as caught:
        chat(decoder, stream=True, stream_options={"include_timings": True})
    assert caught.value.param == "stream_options.include_timings"


def test_what_openai_has_and_we_do_not_is_unsupported_not_unknown(decoder: Decoder) -> None:
    with pytest.raises(UnsupportedField) as caught:
        chat(decoder, verbosity="low")
    assert caught.value.param == "verbosity"


@pytest.mark.parametrize(
    ("ask", "name", "instead"),
    [
        (chat, "prompt", "; it belongs to POST /v1/completions; here write 'messages', such as ["),
        (completion, "messages", "; it belongs to POST /v1/chat/completions; here write 'prompt'."),
        (completion, "tools", "; it belongs to POST /v1/chat/completions."),
        (chat, "echo", "; it belongs to POST /v1/completions."),
        (chat, "functions", "is not available on this deployment; write 'tools'."),
        (chat, "function_call", "is not available on this deployment; write 'tool_choice'."),
        (chat, "image", "; an image belongs in a message's 'content', as a part such as {"),
        (chat, "top_k", " accepted by the engines of 'm' (driver openai). Leave it out. If the engines know it, an"),
        (chat, "typical_p", "; it belongs to an engine's own API, and this model's engines do not accept it. Leave"),
        (completion, "max_new_tokens", "; write 'max_tokens'."),
    ],
)
def test_what_clients_know_from_elsewhere_is_led_to_its_place(
    decoder: Decoder, ask: Any, name: str, instead: str
) -> None:
    with pytest.raises((UnknownField, UnsupportedField)) as caught:
        ask(decoder, **{name: "x"})
    assert f"'{name}' is not" in caught.value.message
    assert instead in caught.value.message
    assert "Did you mean" not in caught.value.message
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("temprature", "temperature"), ("max_token", "max_tokens"), ("sed", "seed"), ("logit_bais", "logit_bias")],
)
def test_a_slip_of_the_finger_is_named(decoder: Decoder, typed: str, meant: str) -> None:
    with pytest.raises(UnknownField, match=rf"Did you mean '{meant}'\?$"):
        chat(decoder, **{typed: 1})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty"),
        (b'{"model": "m",\n  "messages": [}', "line 2, column 16"),
        (b'{"model": "m"', "truncated"),
        (b'{"model": "\xff"}', "not utf-8 (invalid start byte) at byte 11 (line 1, column 12)"),
        (b'{"foo": null, "metadata": {"a": 5, "a": "\xff"}}', "not utf-8"),
        (b"nonsense", "at byte"),
        (b'{"foo": 1, "model": "m",\n  "messages": [}', "line 2, column 16"),
        (b'{"foo": 1, "model": "m"', "truncated"),
        (b'{"foo": 1, "bar": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "nested too deeply"),
        (b'{"foo": null, "messages": [{"a": null, "b": ' + b"[" * 30_000 + b"]" * 30_000 + b"}]}", "nested too deeply"),
    ],
)
def test_broken_json_says_where(decoder: Decoder, body: bytes, said: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        decoder.chat(body)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"metadata": {"good": "x", "bad": 1}}, "metadata.bad"),
        ({"metadata": {"a` - at `$.b[0].c": 1}}, "metadata.a__-_at__$_b_0__c"),
        ({"metadata": {"x" * 300: 1}}, "metadata." + "x" * 191 + "…"),
        ({"logit_bias": {"1": 1, "5": 101}}, "logit_bias.5"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"presence_penalty": -3}, "presence_penalty"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": ""}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_values_out_of_range_name_their_field(decoder: Decoder, more: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        chat(decoder, **more)
    assert caught.value.param == param


def test_marks_of_caches_are_taken_and_go_no_further(decoder: Decoder) -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "5m"}}
    plain: dict[str, Any] = {"type": "text", "text": "a"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": [{**plain, **mark}], **mark},
        {"role": "user", "content": [{**plain, **mark}, {**image, **mark}]},
        {"role": "assistant", "content": [{**plain, **mark}, {"type": "refusal", "refusal": "no"}], **mark},
        {"role": "tool", "tool_call_id": "c", "content": "x", **mark},
    ]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}, **mark}, **mark}]
    request = chat(decoder, messages=messages, tools=tools)
    made = msgspec.json.encode([request.messages, request.tools])
    assert b"cache_control" not in made
    assert made.count(b'"text":"a"') == 3
    with pytest.raises(InvalidField) as caught:
        chat(decoder, messages=[{**messages[0], "cache_control": "ephemeral"}])
    assert caught.value.param == "messages[0].cache_control"


@pytest.mark.parametrize(
    ("given", "thought"),
    [
        ({"reasoning": "r"}, "r"),
        ({"reasoning_content": "r"}, "r"),
        ({"reasoning": "r", "reasoning_content": "r"}, "r"),
        ({"reasoning": "r", "reasoning_content": None}, "r"),
        ({"reasoning": None}, None),
    ],
)
def test_a_thought_of_before_is_taken_by_either_name(
    decoder: Decoder, given: dict[str, Any], thought: str | None
) -> None:
    request = chat(decoder, messages=[{"role": "assistant", "content": "a", **given}])
    [message] = msgspec.to_builtins(request.messages)
    assert message == {"role": "assistant", "content": "a", **({"reasoning_content": thought} if thought else {})}


def test_missing_fields_are_named(decoder: Decoder) -> None:
    with pytest.raises(MissingField) as caught:
        decoder.chat(msgspec.json.encode({"messages": MESSAGES}))
    assert caught.value.param == "model"
    with pytest.raises(MissingField) as caught:
        chat(decoder, messages=[{"role": "tool", "content": "x"}])
    assert caught.value.param == "messages[0].tool_call_id"


def test_an_assistant_message_as_we_answer_it_can_be_sent_back(decoder: Decoder) -> None:
    answer = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "audio": None,
              "function_call": None, "tool_calls": [
                  {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}  # fmt: skip
    request = chat(decoder, messages=[*MESSAGES, answer, {"role": "tool", "tool_call_id": "c", "content": "4"}])
    assert request.messages[1].tool_calls[0].function.name == "f"


def test_every_prompt_shape_is_taken(decoder: Decoder) -> None:
    for prompt in ("a", ["a", "b"], [1, 2], [[1], [2, 3]]):
        assert completion(decoder, prompt=prompt).prompt == prompt


@given(st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(body: bytes) -> None:
    for ask in (Decoder().chat, Decoder().completion):
        with pytest.raises(RequestError):
            ask(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["messages", "n", "stop", "tools", "logit_bias", "response_format", "stream_options", "user"]),
    json_values,
)
def test_random_values_never_raise_anything_else(name: str, value: Any) -> None:
    body = msgspec.json.encode({"model": "m", "messages": MESSAGES, name: value})
    try:
        Decoder().chat(body)
    except RequestError as error:
        assert error.message


PATHS_OF_CLIENTS = (
    "A - at `$.messages[0].content", "A - at `$.messages[0].content`", "A - at `$." + "[" * 30_000, "[0]" * 30_000,
)  # fmt: skip


@pytest.mark.parametrize("text", [*PATHS_OF_CLIENTS, *(text + "B" * 2_000_000 for text in PATHS_OF_CLIENTS)])
def test_a_path_that_the_client_wrote_is_no_path(decoder: Decoder, text: str) -> None:
    for more, param in (
        ({"service_tier": text}, "service_tier"),
        ({"messages": [*MESSAGES, {"role": text, "content": "x"}]}, "messages[1].role"),
        ({"response_format": {"type": text}}, "response_format.type"),
        ({"tool_choice": text}, "tool_choice"),
        ({text: 1}, text if len(text) <= 200 else f"{text[:200]}…"),
        ({"a\nb": 1}, "a\nb"),
    ):
        with pytest.raises(RequestError) as caught:
            chat(decoder, **more)
        assert caught.value.param == param
        assert len(caught.value.message) < 1_000


def test_what_is_allowed_is_still_told_of_a_value_that_holds_a_path(decoder: Decoder) -> None:
    with pytest.raises(InvalidField, match=r"It must be one of: auto, default, flex, priority\.") as caught:
        chat(decoder, service_tier="A - at `$.messages[0].role`")
    assert "'A - at `$.messages[0].role`'" in caught.value.message


def test_a_paths_model_is_no_longer_than_a_bodys_may_be(decoder: Decoder) -> None:
    body = msgspec.json.encode({"prompt": "x"})
    assert decoder.engine_completion(body, "m" * 256).model == "m" * 256
    assert len(decoder.engine_completion(body, "m" * 58_000).model) < 256


def test_null_is_a_value_where_a_change_is_asked_for() -> None:
    """A change of the admin API clears by null: a misspelt name with it would be taken for done."""

    class Change(msgspec.Struct, forbid_unknown_fields=True):
        expires_at: str | None = None

    with pytest.raises(UnknownField) as refused:
        decode(msgspec.json.Decoder(Change), b'{"expire_at":null}', Change)
    assert refused.value.param == "expire_at"
