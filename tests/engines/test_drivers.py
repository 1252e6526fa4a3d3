"""Drivers are pure: what they send comes from the Generation and nothing else; what they read leaks nothing."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import Pool
from contracts.errors import (
    ConfigError,
    ContextTooLong,
    EngineFailed,
    EngineRefused,
    Overloaded,
    SlipstreamError,
    UnsupportedField,
)
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from contracts.pooling import EmbeddingWork, PoolingWork, ScoringWork
from contracts.usage import EngineTiming, Usage
from engines.drivers import error_bodies
from engines.drivers import registry as drivers
from engines.drivers.base import TOOLS_IN_PROMPT, Driver, EngineRequest, Load, strictest
from engines.drivers.engine_timing import timing_of
from engines.drivers.error_bodies import event_error
from engines.drivers.openai_body import opening_pattern

SGLANG = {"rid", "priority", "cache_salt", "return_spec_tokens_details", "min_tokens", "stop_token_ids"}
EXTRAS: dict[str, set[str]] = {
    "embedded": SGLANG | {"speculation", "start_within_s"},
    "sglang": SGLANG,
    "openai": set(),
}
CHAT_FIELDS = {
    "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "logprobs",
    "top_logprobs",
}  # fmt: skip
TEXT_FIELDS = {"prompt", "echo", "suffix", "logprobs"}
COMMON_FIELDS = {
    "model", "stream", "stream_options", "max_tokens", "n", "temperature", "top_p", "frequency_penalty",
    "presence_penalty", "seed", "stop", "logit_bias",
}  # fmt: skip

unit = st.floats(0, 1)
words = st.text(max_size=5)
messages = st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": words}), min_size=1, max_size=2).map(
    tuple
)
chats = st.builds(
    ChatPrompt,
    messages,
    tools=st.none() | st.just(({"type": "function", "function": {"name": "f"}},)),
    tool_choice=st.none() | st.just("auto"),
    parallel_tool_calls=st.none() | st.booleans(),
    response_format=st.none() | st.just({"type": "json_object"}),
    reasoning_effort=st.none() | st.just("low"),
)
texts = st.builds(
    TextPrompt,
    st.lists(words, min_size=1, max_size=3).map(tuple)
    | st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
    echo=st.booleans(),
)
samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 99),
    n=st.integers(1, 3),
    temperature=st.none() | unit,
    top_p=st.none() | unit,
    seed=st.none() | st.integers(0, 9),
    frequency_penalty=st.none() | unit,
    presence_penalty=st.none() | unit,
    stop=st.lists(words, max_size=2).map(tuple),
    min_tokens=st.integers(0, 3),
    stop_ids=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    logit_bias=st.none() | st.just({"5": 1.0}),
    logprobs=st.none() | st.integers(0, 5),
)
generations = st.builds(
    Generation,
    request_id=st.just("req_1"),
    caller=st.just(Caller("secret-organization", "secret-project", "secret-key")),
    tier=st.sampled_from(Tier),
    model=st.just("public-name"),
    prompt=chats | texts,
    sampling=samplings,
    stream=st.booleans(),
    include_usage=st.booleans(),
    priority=st.integers(0, 3),
    cache_salt=st.sampled_from(["", "salt"]),
    no_drafts=st.booleans(),
    start_within_s=st.none() | st.just(3.0),
)
every_driver = pytest.mark.parametrize("name", EXTRAS)
"""But `tensorrt_llm`, which takes other requests and means something else by 400: `test_tensorrt_llm.py`."""


def errors(status: int, body: bytes) -> list[SlipstreamError]:
    """What each driver makes of an engine's answer."""
    return [drivers.get(name).error(status, body) for name in EXTRAS]


def body_of(request: EngineRequest) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(request.body)
    return decoded


def as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def generation(**fields: Any) -> Generation:
    defaults: dict[str, Any] = {
        "request_id": "req_1",
        "caller": Caller("o", "p", "k"),
        "tier": Tier.CHAT,
        "model": "public-name",
        "prompt": ChatPrompt(({"role": "user", "content": "hi"},)),
        "sampling": Sampling(max_tokens=7),
    }
    return Generation(**{**defaults, **fields})


@every_driver
@given(asked=generations)
def test_the_request_is_rebuilt_from_the_generation_alone(name: str, asked: Generation) -> None:
    request = drivers.get(name).generate(asked, "engine-name")
    body = body_of(request)
    is_chat = isinstance(asked.prompt, ChatPrompt)
    assert (request.method, request.path) == ("POST", "/v1/chat/completions" if is_chat else "/v1/completions")
    assert set(body) <= COMMON_FIELDS | (CHAT_FIELDS if is_chat else TEXT_FIELDS) | EXTRAS[name]
    assert b"secret" not in request.body
    assert b"public-name" not in request.body
    assert body["model"] == "engine-name"
    assert body["stream"] is True, "whole answers are collected by the gateway"
    assert body["stream_options"]["include_usage"] is True
    sampling = asked.sampling
    for field in ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed"):
        given = getattr(sampling, field)
        assert (field in body) is (given is not None), "the engine's own value stays in force"
        assert body.get(field) == (given or 1e-6 if field == "top_p" and given is not None else given)
    assert (body["max_tokens"], body.get("n", 1)) == (sampling.max_tokens, sampling.n)
    assert tuple(body.get("stop", ())) == sampling.stop
    assert body.get("logit_bias") == sampling.logit_bias
    if name == "embedded":
        assert body.get("speculation", True) is not asked.no_drafts
        assert body.get("start_within_s") == asked.start_within_s
    if "rid" in EXTRAS[name]:
        assert body.get("min_tokens", 0) == sampling.min_tokens
        assert tuple(body.get("stop_token_ids", ())) == sampling.stop_ids
        assert body["rid"] == "req_1"
        assert body.get("priority", 0) == asked.priority
        assert body.get("cache_salt", "") == asked.cache_salt
        assert body["stream_options"]["continuous_usage_stats"] is True
        assert body["return_spec_tokens_details"] is True
    if isinstance(asked.prompt, TextPrompt):
        prompts = asked.prompt.prompts
        assert body["prompt"] == as_json(prompts[0] if len(prompts) == 1 else prompts)
        assert body.get("echo", False) == asked.prompt.echo
        assert body.get("logprobs") == sampling.logprobs
    else:
        assert body["messages"] == list(asked.prompt.messages)
        assert body.get("logprobs", False) == (sampling.logprobs is not None)
        assert body.get("top_logprobs") == sampling.logprobs
        for field in ("tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"):
            assert body.get(field) == getattr(asked.prompt, field)
        assert body.get("tools") == (None if asked.prompt.tools is None else list(asked.prompt.tools))


@every_driver
def test_prompts_of_mixed_kind_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedField, match="all text or all token ids"):
        drivers.get(name).generate(generation(prompt=TextPrompt(("a", (1, 2)))), "m")


def test_a_gap_as_text_goes_only_to_engines_that_fill_it() -> None:
    asked = generation(prompt=TextPrompt(("a",), suffix="b"))
    for name in ("embedded", "openai"):
        assert body_of(drivers.get(name).generate(asked, "m"))["suffix"] == "b"
    with pytest.raises(UnsupportedField, match="tokenizer") as caught:
        drivers.get("sglang").generate(asked, "m")
    assert caught.value.param == "suffix"


def test_abort_by_id_where_the_engine_can() -> None:
    for name, choices in (("embedded", 1), ("embedded", 2), ("sglang", 1)):
        assert drivers.get(name).abort("req_1", choices) == EngineRequest("POST", "/abort_request", b'{"rid":"req_1"}')
    assert drivers.get("sglang").abort("req_1", 2) is None, "it gives the choices ids of its own"
    assert drivers.get("openai").abort("req_1") is None


@every_driver
def test_capabilities_agree_with_what_the_methods_offer(name: str) -> None:
    driver = drivers.get(name)
    assert driver.capabilities.usage_by_id == (driver.usage_by_id("x") is not None)


def test_usage_by_id() -> None:
    driver = drivers.get("embedded")
    assert driver.usage_by_id("a b&c") == EngineRequest("GET", "/usage?rid=a%20b%26c")
    answer = b'{"rid":"x","usage":{"prompt_tokens":5,"completion_tokens":2,"reasoning_tokens":1}}'
    assert driver.parse_usage_by_id(200, answer) == Usage(5, 2, reasoning_tokens=1)
    told = b'{"usage":{"prompt_tokens":5},"sglext":{"spec_tokens_details":[{"spec_num_proposed_drafts":4},{}]}}'
    assert driver.parse_usage_by_id(200, told) == Usage(5, draft_tokens=4)
    assert driver.parse_usage_by_id(404, b"{}") is None
    for status, body in (
        (500, b""),
        (200, b"no"),
        (200, b"[]"),
        (200, b'{"usage":[]}'),
        (200, b'{"usage":{"prompt_tokens":"x"}}'),
    ):
        with pytest.raises(EngineFailed):
            driver.parse_usage_by_id(status, body)


def test_an_engines_own_time_is_read_or_nothing_is() -> None:
    told = {"queue_ms": 12.5, "prefill_ms": 250, "retractions": 1}
    assert timing_of({"request_timing": told}) == EngineTiming(0.0125, 0.25, 1)
    assert timing_of({"request_timing": told, "spec_tokens_details": {}}) == EngineTiming(0.0125, 0.25, 1)
    compiled = {**told, "grammar_ms": 40}
    assert timing_of({"request_timing": compiled}) == EngineTiming(0.0125, 0.25, 1, 0.04)
    unread: list[Any] = [None, 3, {}, {"request_timing": None}, {"request_timing": [told]}, {"spec_tokens_details": {}}]
    unread += [
        {"request_timing": {**compiled, name: value}}
        for name in compiled
        for value in (None, "x", -1, float("inf"), float("nan"))
    ]
    assert [timing_of(one) for one in unread] == [None] * len(unread)


SGLANG_PATHS = (
    "1 validation error:\n  {'type': 'float_parsing', 'loc': ('body', 'temperature'), 'msg': 'Input should be a valid "
    "number', 'input': 'x'}\n\n  File \"/opt/venv/sglang/srt/entrypoints/http_server.py\", line 1860, in openai_v1"
)


REFUSED = "The engine found the request invalid."
TELL = "Tell the operator, with this answer's x-request-id."
NOT_SERVED = f"The model is misconfigured here: its engine does not serve it. {TELL}"
NOT_STARTED_FOR = f"The model is misconfigured here: its engine was not started for such requests. {TELL}"
NO_CREDIT = f"The engine's provider does not serve this deployment's account. {TELL}"


def flat(message: str, code: int = 400) -> bytes:
    return msgspec.json.encode(
        {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": code}
    )


def nested(message: str, code: Any = None) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": "x", "param": None, "code": code}})


@pytest.mark.parametrize(
    ("status", "message", "kind", "text"),
    [
        (400, "top_p must be in (0, 1], got 2.0.", EngineRefused, "top_p must be in (0, 1], got 2.0."),
        (400, SGLANG_PATHS, EngineRefused, "temperature: Input should be a valid number"),
        (422, 'Traceback (most recent call last):\n  File "x.py"', EngineRefused, REFUSED),
        (400, "see /opt/models/secret for details", EngineRefused, REFUSED),
        (400, "", EngineRefused, REFUSED),
        (429, "queue of 128 full at 10.0.0.3", Overloaded, "The engine is at its limit. Try again shortly."),
        (503, "x", Overloaded, "The engine is at its limit. Try again shortly."),
        (401, "Unauthorized", EngineFailed, "The engine does not accept the API key it is sent."),
        (404, "The model `a` does not exist. Did you mean 'b'?", EngineFailed, NOT_SERVED),
        (404, "", EngineFailed, NOT_SERVED),
        (501, "This server does not support reranking. Start it with `--reranking`", EngineFailed, NOT_STARTED_FOR),
        (400, 'can only concatenate str (not "list") to str', EngineRefused, REFUSED),
        (400, "'dict object' has no attribute 'content' None", EngineRefused, REFUSED),
        (400, "'NoneType' object is not iterable", EngineRefused, REFUSED),
        (400, "worker at 10.0.0.3 refused", EngineRefused, REFUSED),
        (400, "Cannot load adapter '/srv/models/acme-secret/adapter'", EngineRefused, REFUSED),
        (400, "Cannot load adapter(~/acme-secret/adapter)", EngineRefused, REFUSED),
        (400, "Upstream gpu-7.prod.internal:30000 refused the schema", EngineRefused, REFUSED),
        (400, "Upstream gpu-7.prod.internal refused the schema", EngineRefused, REFUSED),
        (400, "Upstream gpu-7:30000 refused the schema", EngineRefused, REFUSED),
        (400, "peer [fd00:12::7]:30000 said no", EngineRefused, REFUSED),
        (400, "peer [::1]:30000 said no", EngineRefused, REFUSED),
        (400, "peer fd00:12:0:0::7 said no", EngineRefused, REFUSED),
        (400, "tcp://gpu-7 said no", EngineRefused, REFUSED),
        (400, "Incorrect API key sk-proj-abcdef", EngineRefused, REFUSED),
        (400, "Rate limit reached for org-4711", EngineRefused, REFUSED),
        (400, "{'loc': ('body', 'messages'), 'msg': 'File \"/opt/vllm/serving.py\", line 1'}", EngineRefused, REFUSED),
        (400, "{'loc': ('body', 'messages'), 'msg': 'see http://10.0.0.7:8000', 'input': 3}", EngineRefused, REFUSED),
        (400, "and/or text/plain; '#/definitions/a/b' is at 12:30:45", EngineRefused,
         "and/or text/plain; '#/definitions/a/b' is at 12:30:45"),
        (500, "CUDA error at 0xdeadbeef", EngineFailed, "The engine answered with status 500."),
    ],
)  # fmt: skip
def test_refusals_become_our_errors_without_internals(
    status: int, message: str, kind: type[Exception], text: str
) -> None:
    for error in (*errors(status, flat(message)), *errors(status, nested(message))):
        assert type(error) is kind
        assert error.message == text


def test_a_field_of_ours_that_an_engine_refuses_is_no_fault_of_the_client() -> None:
    body = {"error": {"message": "Unknown field: request_id.", "param": "request_id"}}
    for error in errors(400, msgspec.json.encode(body)):
        assert type(error) is EngineFailed
        assert "the pool's `driver` may be another engine's" in (error.detail or "")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (402, {"message": "Payment required."}),
        (429, {"message": "You exceeded your current quota.", "code": "insufficient_quota"}),
        (429, {"message": "You exceeded your current quota.", "type": "insufficient_quota"}),
    ],
)
def test_a_provider_without_our_money_is_no_full_engine(status: int, error: dict[str, str]) -> None:
    """A wait would not help the client, nor another replica the operator."""
    said = f"status {status}: {error['message']}"
    for found in errors(status, msgspec.json.encode({"error": error})):
        assert (type(found), found.message, found.retry_after_s) == (EngineFailed, NO_CREDIT, None)
        assert found.detail == f"{said}; the account behind the pool's API key has no credit or quota left there"


def test_the_log_is_told_what_an_engine_that_does_not_know_the_model_says() -> None:
    for error in errors(404, nested("The model 'a' does not exist. Did you mean 'b'?")):
        assert str(error) == (
            f"{NOT_SERVED} (status 404: The model 'a' does not exist. Did you mean 'b'?; compare the engine's "
            "/v1/models with the model's name or engine_model)"
        )


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        ("The input (3000 tokens) is longer than the model's context length (2048 tokens).", (2048, 3000, 0)),
        (
            "Requested token count exceeds the model's maximum context length of 2048 tokens. You requested a total of "
            "2500 tokens: 2000 tokens from the input messages and 500 tokens for the completion. Please reduce the "
            "number of tokens in the input messages or the completion to fit within the limit.",
            (2048, 2000, 500),
        ),
        (
            "This model's maximum context length is 2048 tokens. However, you requested 2500 tokens (2000 in the "
            "messages, 500 in the completion). Please reduce the length of the messages or completion.",
            (2048, 2000, 500),
        ),
        ("the request (3000 tokens) exceeds the available context size (2048 tokens)", (2048, 3000, 0)),
        (
            "input (3000 tokens) is too large to process. increase the physical batch size (current batch size: 2048)",
            (2048, 3000, 0),
        ),
        (str(ContextTooLong(limit_tokens=2048, prompt_tokens=3000, output_tokens=1, param="x")), (2048, 3000, 0)),
        (str(ContextTooLong(limit_tokens=2048, prompt_tokens=2000, output_tokens=500, param="x")), (2048, 2000, 500)),
    ],
)  # fmt: skip
def test_a_context_that_is_too_long_is_recognised(message: str, counts: tuple[int, int, int]) -> None:
    limit, prompt, output = counts
    expected = ContextTooLong(limit_tokens=limit, prompt_tokens=prompt, output_tokens=output, param="x")
    for error in errors(400, flat(message)):
        assert isinstance(error, ContextTooLong)
        assert error.message == expected.message


@given(status=st.sampled_from([400, 404, 422, 429, 500, 503]), body=st.binary(max_size=40))
def test_any_error_body_gives_an_error(status: int, body: bytes) -> None:
    assert all(error.message for error in errors(status, body))


QUOTED_BY_AN_ENGINE = (
    "'loc': ('body', 'a'", "'loc': ('body', 'a', 'msg': 'b", "maximum context length is 1 tokens ",
    "maximum context length of 1 tokens. x", "maximum model length is 1", "maximum model length is 1 ", " 1", "/a",
    "a.b", "input (", "1", "[:", "a-", "\n",
)  # fmt: skip


class Watched:
    """A pattern that knows the longest text it was run on."""

    longest = 0

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def search(self, text: str) -> re.Match[str] | None:
        Watched.longest = max(Watched.longest, len(text))
        return self._pattern.search(text)


@pytest.mark.parametrize("text", QUOTED_BY_AN_ENGINE)
def test_patterns_see_only_the_beginning_of_what_an_engine_quotes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may quote 64 kB of a client's; a pattern takes time for all pairs of places where it could begin and
    end."""
    monkeypatch.setattr(Watched, "longest", 0)
    monkeypatch.setattr(error_bodies, "_TOO_LONG", tuple(map(Watched, error_bodies._TOO_LONG)))
    for pattern in ("_VALIDATION", "_INTERNAL"):
        monkeypatch.setattr(error_bodies, pattern, Watched(getattr(error_bodies, pattern)))
    long = text * (60_000 // len(text))
    for body in (flat(long), nested(long), msgspec.json.encode({"error": long})):
        errors(400, body)
    assert 0 < Watched.longest <= error_bodies.MAX_READ


def test_no_pattern_has_a_gap_without_an_end() -> None:
    for pattern in (*error_bodies._TOO_LONG, error_bodies._VALIDATION):
        assert re.search(r"[^\\][*+]", pattern.pattern) is None, pattern.pattern


@pytest.mark.parametrize(
    "form",
    [
        "input ({} tokens) is longer than the model's context length (5 tokens)",
        "the request (5 tokens) exceeds the available context size ({} tokens)",
        "maximum model length is {} and there are 5 tokens",
    ],
)
def test_a_number_of_five_thousand_digits_is_no_count(form: str) -> None:
    """Python refuses to read one of more than 4,300."""
    for digits in (1_900, 5_000):
        assert all(isinstance(error, EngineRefused) for error in errors(400, flat(form.format("1" * digits))))


@pytest.mark.parametrize(
    ("param", "told"),
    [("temperature", "temperature"), ("", None), ("/srv/models/acme", None), ("a" * 401, None), ("a\nb", None)],
)
def test_a_param_is_told_where_a_sentence_would_be(param: str, told: str | None) -> None:
    for error in errors(400, msgspec.json.encode({"error": {"message": "x", "param": param}})):
        assert isinstance(error, EngineRefused)
        assert error.param == told


@pytest.mark.parametrize("body", [b'{"error":"\xff"}', b"[" * 60_000, b"[1]", b'{"code":' + b"1" * 5_000 + b"}"])
def test_a_body_that_is_no_error_body_says_nothing(body: bytes) -> None:
    assert {error.message for error in errors(400, body)} == {REFUSED}


def test_an_id_that_still_runs_is_not_the_clients_fault() -> None:
    error = drivers.get("sglang").error(400, flat("Duplicate request ID detected: req_1"))
    assert type(error) is EngineFailed
    assert "req_1" not in error.message


def test_the_embedded_engine_says_the_same_in_its_own_words() -> None:
    said = {"error": {"message": "A request with the id 'req_1' is running.", "param": "rid", "code": "invalid_value"}}
    assert type(drivers.get("embedded").error(400, msgspec.json.encode(said))) is EngineFailed


def test_load_is_summed_over_the_ranks() -> None:
    rank = {"num_running_reqs": 2, "num_waiting_reqs": 1, "num_used_tokens": 96, "max_total_num_tokens": 20000}
    driver = drivers.get("sglang")
    assert driver.load() == EngineRequest("GET", "/v1/loads")
    assert driver.parse_load(msgspec.json.encode({"loads": [rank, rank]})) == Load(4, 2, 192, 40000)
    rank["max_running_requests"] = 48
    assert driver.parse_load(msgspec.json.encode({"loads": [rank, rank]})) == Load(4, 2, 192, 40000, max_running=96)
    del rank["num_used_tokens"]
    full = driver.parse_load(msgspec.json.encode({"loads": [rank]}))
    assert full == Load(2, 1, max_running=48), "memory of which nobody says how full it is is not taken for empty"
    for body in (b"", b"[]", b"{}", b'{"loads":[]}', b'{"loads":[{}]}', b'{"loads":[3]}', b'{"loads":3}'):
        with pytest.raises(EngineFailed):
            driver.parse_load(body)
    assert drivers.get("openai").load() is None


def test_an_unknown_driver_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="did you mean 'sglang'"):
        drivers.get("sglnag")


def test_a_pools_options_reach_its_driver_and_nothing_is_sent_without_them() -> None:
    asked = generation(cache_salt="salt")
    plain, told = Pool("p", "openai"), Pool("p", "openai", continuous_usage_stats=True, cache_salt=True)
    body = body_of(drivers.of_pool(plain).generate(asked, "m"))
    assert body["stream_options"] == {"include_usage": True}
    assert "cache_salt" not in body
    body = body_of(drivers.of_pool(told).generate(asked, "m"))
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["cache_salt"] == "salt"
    assert "cache_salt" not in body_of(drivers.of_pool(told).generate(generation(), "m"))
    capabilities = drivers.of_pool(plain).capabilities, drivers.of_pool(told).capabilities
    assert [(each.running_count, each.salted_cache) for each in capabilities] == [(False, False), (True, True)]
    for name in ("embedded", "sglang"):
        assert drivers.of_pool(Pool("p", name)) is drivers.get(name)
        assert drivers.get(name).capabilities.salted_cache
    with pytest.raises(ConfigError, match="did you mean 'sglang'"):
        drivers.of_pool(Pool("p", "sglnag"))


def test_the_most_tokens_of_a_chat_answer_go_by_the_name_the_pools_engines_take() -> None:
    plain = drivers.of_pool(Pool("p", "openai"))
    newer = drivers.of_pool(Pool("p", "openai", max_completion_tokens=True))
    names = {"max_tokens", "max_completion_tokens"}

    def limits(driver: Driver, **fields: Any) -> dict[str, Any]:
        body = body_of(driver.generate(generation(**fields), "m"))
        return {name: body[name] for name in names & body.keys()}

    assert limits(plain) == {"max_tokens": 7}
    assert limits(newer) == {"max_completion_tokens": 7}
    assert limits(newer, prompt=TextPrompt(("a",))) == {"max_tokens": 7}, "/v1/completions never had the other name"


@pytest.mark.parametrize("one", drivers.names())
@pytest.mark.parametrize("other", drivers.names())
def test_of_two_dialects_only_what_both_can_is_relied_upon(one: str, other: str) -> None:
    first, second = drivers.get(one).capabilities, drivers.get(other).capabilities
    both = strictest(first, second)
    assert both == strictest(second, first)
    assert strictest(first, first) == first
    for field in msgspec.structs.fields(both):
        if field.type is bool:
            assert getattr(both, field.name) == (getattr(first, field.name) and getattr(second, field.name))
    # a prompt is counted with at least the tools that either engine puts into it
    assert TOOLS_IN_PROMPT.index(both.tools_in_prompt) == min(
        TOOLS_IN_PROMPT.index(each.tools_in_prompt) for each in (first, second)
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, EngineRefused), ("422", EngineRefused), (413, EngineRefused), (429, Overloaded), (401, EngineFailed),
        (500, EngineFailed), (503, EngineFailed), (None, EngineFailed), ("invalid_value", EngineFailed),
        (4000, EngineFailed), ("4", EngineFailed), ("\u0664\u0660\u0660", EngineFailed),
    ],
)  # fmt: skip
def test_an_error_event_is_a_refusal_only_when_it_says_so(code: Any, kind: type) -> None:
    said = "The grammar is too complex."
    for name in EXTRAS:
        for event in (flat(said, code), nested(said, code)):
            error = event_error(event, drivers.get(name).error)
            assert type(error) is kind
            assert (error.message == said) == (kind is EngineRefused)


def test_every_driver_keeps_the_protocol() -> None:
    for name in drivers.names():
        driver: Driver = drivers.get(name)
        assert driver.name == name
        assert driver.health().method == "GET"


def test_only_an_engine_that_can_is_made_to_begin_with_a_text() -> None:
    prompt = TextPrompt(((1, 2),), filled_gap=True, begins_with=" offse")
    asked = Generation("r", Caller("o", "p", "k"), Tier.AUTOCOMPLETE, "m", prompt, Sampling(max_tokens=8))
    assert msgspec.json.decode(drivers.get("embedded").generate(asked, "m").body)["begins_with"] == " offse"
    made = {name: drivers.get(name).generate(asked, "m") for name in ("embedded", "sglang", "vllm")}
    bodies = {name: msgspec.json.decode(request.body) for name, request in made.items()}
    assert bodies["sglang"]["regex"] == r" offse[\s\S]*"
    assert bodies["vllm"]["structured_outputs"] == {"regex": r" offse[\s\S]*"}
    assert [request.opening for request in made.values()] == ["", " offse", " offse"]
    plain = msgspec.structs.replace(asked, prompt=TextPrompt(((1, 2),), filled_gap=True))
    for name in ("sglang", "vllm"):
        request = drivers.get(name).generate(plain, "m")
        assert not {"regex", "structured_outputs"} & msgspec.json.decode(request.body).keys()
        assert request.opening == ""
    able = [drivers.get(name).capabilities for name in drivers.names()]
    assert [one.dialects[0] for one in able if one.openings] == ["embedded", "sglang", "vllm"]
    assert [one.dialects[0] for one in able if one.own_openings] == ["embedded"]
    with pytest.raises(UnsupportedField, match="begin"):
        drivers.get("openai").generate(asked, "m")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), st.text(max_size=8))
def test_a_pattern_takes_what_begins_with_its_text_and_nothing_else(opening: str, rest: str) -> None:
    pattern = re.compile(opening_pattern(opening))
    assert pattern.fullmatch(opening + rest)
    assert not pattern.fullmatch(opening[:-1])
    assert bool(pattern.fullmatch(rest)) == rest.startswith(opening)


def test_vectors_and_scores_are_requested_in_each_dialect() -> None:
    one, several = EmbeddingWork(("a",), "base64", 8), EmbeddingWork(((1, 2), (3,)))
    ranked, paired = ScoringWork(("q",), ("a", "b")), ScoringWork(("p", "q"), ("a", "b"))
    generation = Generation(
        "req_1", Caller("o", "p", "k"), Tier.CHAT, "m", TextPrompt(("a",)), Sampling(max_tokens=0), cache_salt="salt"
    )

    def asked(driver: str, work: PoolingWork) -> tuple[str, dict[str, Any]]:
        made = drivers.get(driver).pooled(work, generation, "theirs")
        return made.path, msgspec.json.decode(made.body)

    plain = {"model": "theirs", "input": "a", "encoding_format": "base64", "dimensions": 8}
    assert asked("openai", one) == ("/v1/embeddings", plain)
    assert asked("sglang", one) == ("/v1/embeddings", {**plain, "rid": "req_1"})
    assert asked("vllm", one) == ("/v1/embeddings", {**plain, "request_id": "req_1", "cache_salt": "salt"})
    assert asked("embedded", one) == ("/v1/embeddings", {**plain, "rid": "req_1", "cache_salt": "salt"})
    ids = {"model": "theirs", "input": [[1, 2], [3]]}
    assert asked("sglang", several) == ("/v1/embeddings", {**ids, "rid": ["req_1-0", "req_1-1"]})
    assert asked("embedded", several)[1]["rid"] == "req_1"
    rank = {"model": "theirs", "query": "q", "documents": ["a", "b"]}
    assert asked("openai", ranked) == asked("sglang", ranked) == ("/v1/rerank", rank)
    assert asked("vllm", ranked)[1]["text_1"] == "q"
    assert asked("vllm", paired) == (
        "/v1/score",
        {"model": "theirs", "text_1": ["p", "q"], "text_2": ["a", "b"], "request_id": "req_1", "cache_salt": "salt"},
    )
    with pytest.raises(UnsupportedField, match="compares one text with others"):
        asked("openai", paired)
    with pytest.raises(UnsupportedField, match="make neither vectors nor scores"):
        asked("tensorrt_llm", one)
