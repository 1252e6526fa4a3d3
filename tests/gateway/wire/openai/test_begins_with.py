"""A client's own `begins_with`: taken where an engine can be made to begin an output so, under healing's own rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField, RequestError, UnsupportedField
from engines.drivers import registry as drivers
from engines.tokenizer.tokenizer import Tokenizer
from tests.gateway.wire.openai.preparing import MODELS, complete, prompts_of, target

CODE = Tokenizer.load(MODELS / "slipstream-code")
IDS = CODE.plain_ids("return self.getUser")
GAP: dict[str, Any] = {"prompt": "self.getUserNam", "suffix": "\n"}
END = min(CODE.control_ids)
ROOM: dict[str, Any] = {"context_tokens": 400, "fim": {"healing": True}}


@pytest.mark.parametrize(
    ("driver", "field"),
    [
        ("embedded", {"begins_with": "Nam"}),
        ("sglang", {"regex": r"Nam[\s\S]*"}),
        ("vllm", {"structured_outputs": {"regex": r"Nam[\s\S]*"}}),
    ],
)
@pytest.mark.parametrize("prompt", [IDS, "return self.getUser", [IDS, IDS]])
async def test_the_engine_is_made_to_begin_with_it(driver: str, field: dict[str, Any], prompt: Any) -> None:
    prepared = await complete(target(CODE, driver, **ROOM), prompt, begins_with="Nam", n=2, logprobs=1)
    sent = drivers.get(driver).generate(prepared.generation, "m")
    body = msgspec.json.decode(sent.body)
    assert body["prompt"] == ([IDS, IDS] if prompt == [IDS, IDS] else IDS)
    assert field.items() <= body.items()
    assert sent.opening == ("" if driver == "embedded" else "Nam"), "what is cut off the response"


@pytest.mark.parametrize(
    ("driver", "asked", "reason"),
    [
        (
            "sglang",
            {"begins_with": "Nam", "max_tokens": 3},
            r"'Nam': it has \d tokens?; the maximum is 0, a quarter of",
        ),
        ("embedded", {"begins_with": "Nam", "max_tokens": 3}, "the maximum is 0, a quarter of 'max_tokens'"),
        ("vllm", {"begins_with": "Nam", "stop": ["x", "me"]}, "a text of 'stop' may begin in it"),
        ("sglang", {"begins_with": "<|fim"}, "a control token may begin in it"),
        ("vllm", {"begins_with": "\0"}, "it has a character that cannot be printed"),
        ("sglang", {"begins_with": "12", "max_tokens": 40}, "no token begins with it and continues after it"),
        (
            "vllm",
            {"begins_with": "Nam", "top_k": 3},
            "the request has engine parameters, and one of them may be a grammar",
        ),
        ("sglang", {"begins_with": "Nam", "stop_token_ids": [IDS[0]]}, "the request has engine parameters"),
        ("embedded", {"begins_with": ""}, "begins_with"),
        ("embedded", {"begins_with": "x" * 65}, "begins_with"),
    ],
)
async def test_a_text_that_an_engine_may_fail_on_is_refused_with_the_reason(
    driver: str, asked: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidField, match=reason) as said:
        await complete(target(CODE, driver, **ROOM), IDS, **asked)
    assert said.value.param == "begins_with"


@pytest.mark.parametrize(
    ("driver", "asked", "reason"),
    [
        (
            "openai",
            {},
            "needs the model's byte-level 'tokenizer' and 'fim.healing', and engines of the driver embedded, sglang or "
            "vllm",
        ),
        ("llama_cpp", {}, "needs the model's byte-level 'tokenizer'"),
        ("sglang", {"echo": True}, "'begins_with' and 'echo' cannot be combined"),
        ("sglang", GAP, "cannot be combined with 'suffix'"),
        ("embedded", {"prompt": "<|fim_prefix|>x<|fim_suffix|>y<|fim_middle|>"}, "fill-in-the-middle marks"),
    ],
)
async def test_where_no_output_can_begin_so_the_field_is_refused(
    driver: str, asked: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedField, match=reason) as said:
        await complete(target(CODE, driver, **ROOM), **{"prompt": "x = 1", "begins_with": "Nam", **asked})
    assert said.value.param == "begins_with"


async def test_a_model_without_a_tokenizer_here_or_without_healing_is_refused() -> None:
    for where in (target(None, "embedded", **ROOM), target(CODE, "sglang", context_tokens=400)):
        with pytest.raises(RequestError, match=r"needs the model's byte-level 'tokenizer' and 'fim.healing'"):
            await complete(where, "x = 1", begins_with="Nam")


async def test_ids_of_control_tokens_that_end_a_text_hinder_no_healing_and_others_do() -> None:
    """They are no grammar, and no opening has one."""
    where = target(CODE, "sglang", **ROOM)
    assert prompts_of(await complete(where, **GAP, stop_token_ids=[END])).begins_with == "Nam"
    assert prompts_of(await complete(where, **GAP, stop_token_ids=[END, IDS[0]])).begins_with == ""
    assert prompts_of(await complete(where, **GAP, stop_token_ids=[END], top_k=3)).begins_with == ""
