"""The `vllm` driver: what it sends, and what it reads of a page and of sentences that vLLM 0.32.0 has given.

The page is of four requests, one after another, on a CPU, of which only the families that are read are kept. Its first
prefill took half a minute: it compiles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.desired_state import Pool
from contracts.errors import ContextTooLong, EngineFailed, EngineRefused, UnsupportedField
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from contracts.usage import EngineTiming, Usage
from engines.drivers import registry as drivers
from engines.drivers.base import EngineRequest, Load
from engines.drivers.engine_timing import timing_of
from engines.drivers.error_bodies import event_error, with_drafts
from engines.drivers.vllm import VLLMDriver

RECORDED = Path(__file__).parent / "recorded" / "vllm_0_32_0.prom"
DRIVER = VLLMDriver()
CHAT = ChatPrompt(({"role": "user", "content": "hi"},))


def asked(prompt: ChatPrompt | TextPrompt = CHAT, **fields: Any) -> Generation:
    defaults: dict[str, Any] = {"sampling": Sampling(max_tokens=7)}
    return Generation(
        request_id="req_1", caller=Caller("o", "p", "k"), tier=Tier.CHAT, model="public-name", prompt=prompt,
        **{**defaults, **fields},
    )  # fmt: skip


def body_of(generation: Generation) -> Any:
    return msgspec.json.decode(DRIVER.generate(generation, "m").body)


def error_of(message: str, param: str | None = None, code: int = 400) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": "x", "param": param, "code": code}})


def test_a_request_says_id_salt_counts_and_the_order_that_vllm_counts_downwards() -> None:
    sampling = Sampling(max_tokens=7, min_tokens=2, stop_ids=(3,))
    body = body_of(asked(sampling=sampling, cache_salt="salt", priority=3))
    assert body["request_id"] == "req_1"
    assert body["cache_salt"] == "salt"
    assert (body["min_tokens"], body["stop_token_ids"]) == (2, [3])
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["priority"] == -3
    assert body_of(asked(priority=-10))["priority"] == 10
    plain = body_of(asked())
    assert not {"priority", "cache_salt", "min_tokens", "stop_token_ids"} & plain.keys()


@pytest.mark.parametrize(
    ("generation", "param"),
    [
        (asked(TextPrompt(("a",), suffix="b")), "suffix"),
        (asked(sampling=Sampling(max_tokens=7, n=2, temperature=0.0)), "n"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(generation: Generation, param: str) -> None:
    with pytest.raises(UnsupportedField) as caught:
        DRIVER.generate(generation, "m")
    assert caught.value.param == param


def test_several_choices_need_some_warmth() -> None:
    assert body_of(asked(sampling=Sampling(max_tokens=7, n=2)))["n"] == 2
    assert body_of(asked(sampling=Sampling(max_tokens=7, n=2, temperature=0.1)))["n"] == 2


def test_it_stops_by_id_only_where_the_pool_says_so() -> None:
    assert drivers.of_pool(Pool("p", "vllm")).abort("req_1") is None
    stop = drivers.of_pool(Pool("p", "vllm", abort_by_id=True)).abort("req_1", 2)
    ids = b'["chatcmpl-req_1","cmpl-req_1-0","cmpl-req_1-1"]'
    assert stop == EngineRequest("POST", "/inference/v1/abort_requests", b'{"request_ids":%b}' % ids)


@pytest.mark.parametrize(
    ("message", "param", "kind", "told", "field"),
    [
        (
            "top_p must be in (0, 1], got 2.0. (parameter=top_p, value=2.0)", "top_p",
            EngineRefused, "top_p must be in (0, 1], got 2.0.", "top_p",
        ),
        (
            "1 validation error:\n  {'type': 'float_parsing', 'loc': 'body.temperature', 'msg': 'Input should be a "
            "valid number, unable to parse string as a number', 'input': 'warm'}", "body.temperature",
            EngineRefused, "temperature: Input should be a valid number, unable to parse string as a number",
            "temperature",
        ),
        (
            "max_tokens=5000 cannot be greater than max_model_len=2048. Please request fewer output tokens. "
            "(parameter=max_tokens, value=5000)", "max_tokens",
            EngineRefused, "max_tokens=5000 cannot be greater than max_model_len=2048. Please request fewer output "
            "tokens.", "max_tokens",
        ),
        (
            "This model's maximum context length is 2048 tokens. However, your prompt contains 3000 input tokens, "
            "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
            "(parameter=input_tokens, value=3000)", "input_tokens",
            ContextTooLong, "This model's context is 2048 tokens. The prompt has 3000 tokens, which leaves none for "
            "the response. Shorten the prompt.", "prompt",
        ),
        (
            "This model's maximum context length is 2048 tokens. However, your prompt contains 27034 characters (more "
            "than 26624 characters, which is the upper bound for 2048 input tokens). Please reduce the length of the "
            "input prompt. (parameter=input_text, value=27034)", "input_text",
            ContextTooLong, "This model's context is 2048 tokens. The prompt has 27034 characters, which are at least "
            "2049 tokens, which leaves none for the response. Shorten the prompt.", "prompt",
        ),
        (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', None,
            UnsupportedField, "This model cannot choose among tools here: its engine was started without a parser of "
            "tool calls.", "tool_choice",
        ),
        (
            "Token id 999999 is out of vocabulary", None,
            EngineRefused, "Token id 999999 is out of vocabulary", None,
        ),
    ],
)  # fmt: skip
def test_refusals_are_in_our_words_or_in_one_plain_sentence(
    message: str, param: str | None, kind: type[EngineRefused], told: str, field: str | None
) -> None:
    event = error_of(message, param)
    # what is found while the stream has begun comes as its first event
    for error in (DRIVER.error(400, event), event_error(event, DRIVER.error)):
        assert type(error) is kind
        assert (error.message, error.param) == (told, field)


def test_a_stranger_is_told_apart_from_a_refusal() -> None:
    assert isinstance(DRIVER.error(401, b'{"error":"Unauthorized"}'), EngineFailed)


def test_a_real_page_is_read() -> None:
    page = RECORDED.read_bytes()
    assert DRIVER.parse_load(page) == Load(capacity_tokens=262_144)
    counts = DRIVER.parse_counts(page)
    assert (counts.prompt_tokens, counts.cached_tokens, counts.completion_tokens) == (2_015, 0, 65)
    assert counts.stages is not None
    assert (counts.stages.requests, counts.stages.retractions) == (4, 0)
    assert (round(counts.stages.queue_s, 6), round(counts.stages.prefill_s, 1)) == (0.000121, 39.7)


def test_load_is_read_from_its_counters() -> None:
    page = page_of(
        running=2.0, waiting=5.0, usage=0.25, preempted=3.0, cache='block_size="16",kv_cache_size_tokens="4096"'
    )
    assert DRIVER.parse_load(page) == Load(running=2, waiting=5, used_tokens=1024, capacity_tokens=4096, retracted=3)


def test_engines_of_one_replica_add_up_and_an_older_page_tells_blocks() -> None:
    cache = 'block_size="16",effective_attention_block_size="8",num_gpu_blocks="100"'
    one, other = (page_of(engine, 1.0, 2.0, usage, 1.0, cache) for engine, usage in (("0", 0.5), ("1", 0.25)))
    assert DRIVER.parse_load(one + other) == Load(
        running=2, waiting=4, used_tokens=1200, capacity_tokens=3200, retracted=2
    )


@pytest.mark.parametrize("page", [b"", b"python_gc_objects_collected_total 1.0\n", b"vllm:num_requests_running x\n"])
def test_a_page_without_counters_is_no_load(page: bytes) -> None:
    for read in (DRIVER.parse_load, DRIVER.parse_counts):
        with pytest.raises(EngineFailed, match="counters"):
            read(page)


def test_an_engine_that_does_not_say_its_memory_has_none_to_count_with() -> None:
    page = b"vllm:num_requests_running 1.0\nvllm:num_requests_waiting 0.0\n"
    assert DRIVER.parse_load(page) == Load(running=1)
    size = page_of(running=1.0, cache='kv_cache_size_tokens="4096"').replace(b"kv_cache_usage_perc", b"renamed")
    assert DRIVER.parse_load(size) == Load(running=1), "how full it is, nobody says: it is not taken for empty"


def page_of(
    engine: str = "0", running: float = 0.0, waiting: float = 0.0, usage: float = 0.0, preempted: float = 0.0,
    cache: str = "",
) -> bytes:  # fmt: skip
    labels = f'{{engine="{engine}",model_name="m"}}'
    return (
        f"# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        f"vllm:num_requests_running{labels} {running}\nvllm:num_requests_waiting{labels} {waiting}\n"
        f'vllm:num_requests_waiting_by_reason{{engine="{engine}",reason="capacity"}} 9.0\n'
        f"vllm:kv_cache_usage_perc{labels} {usage}\nvllm:num_preemptions_total{labels} {preempted}\n"
        f"vllm:num_preemptions_created{labels} 1.79e+09\n"
        f'vllm:cache_config_info{{cache_dtype="auto",engine="{engine}",hash_block_size="8",{cache}}} 1.0\n'
    ).encode()


def test_drafts_and_times_are_read_beside_the_usage() -> None:
    told = {
        "queue_time_ms": 12.5, "time_to_first_token_ms": 250.0, "mean_itl_ms": 3.0,
        "speculative_decoding": {"num_draft_tokens": 30, "num_accepted_draft_tokens": 12, "num_spec_steps": 10},
    }  # fmt: skip
    assert with_drafts(Usage(5, 20), told) == Usage(5, 20, draft_tokens=30, accepted_draft_tokens=12)
    assert timing_of(told) == EngineTiming(0.0125, 0.25, 0)
    assert timing_of({"speculative_decoding": {}, "queue_time_ms": None}) is None
    assert with_drafts(Usage(5), {"speculative_decoding": None}) == Usage(5)
