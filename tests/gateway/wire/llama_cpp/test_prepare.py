"""What of llama.cpp's fields becomes a rule, a limit or a part of the gap."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.generation import TextPrompt
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.fill.request import Filled
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.llama_cpp.answer import Wanted
from gateway.wire.llama_cpp.format import InfillFormat, LlamaCompletionFormat
from gateway.wire.llama_cpp.prepare import prepare_completion, prepare_infill
from gateway.wire.prepared import Prepared, Target
from tests.gateway.wire.openai.preparing import CALLER, MODELS, cost_tokens, target

CODE = Tokenizer.load(MODELS / "slipstream-code")
GAP = {"input_prefix": "a = 1\n", "prompt": "b", "input_suffix": "\n"}
RENDERED = "<|fim_prefix|>a = 1\nb<|fim_suffix|>\n<|fim_middle|>"


async def infill(**fields: Any) -> Prepared:
    asked = InfillFormat(RequestConfig()).decode(msgspec.json.encode({**GAP, **fields}))
    return await prepare_infill(asked, "req_1", CALLER, "salt", target(CODE))


async def completion(prompt: str = RENDERED, *, where: Target | None = None, **fields: Any) -> Prepared:
    asked = LlamaCompletionFormat(RequestConfig()).decode(msgspec.json.encode({"prompt": prompt, **fields}))
    return await prepare_completion(asked, "req_1", CALLER, "salt", where or target(CODE))


def filled(prepared: Prepared) -> Filled:
    assert isinstance(prepared.details, Filled)
    return prepared.details


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({}, StopRules()),
        ({"n_indent": 4, "t_max_predict_ms": 250}, StopRules(min_indent=4, time_limit_s=0.25)),
        ({"n_indent": 0, "t_max_predict_ms": -1}, StopRules()),
    ],
)
async def test_rules(fields: dict[str, Any], rules: StopRules) -> None:
    assert filled(await infill(**fields)).rules == rules
    assert filled(await completion(**fields)).rules == rules
    plain = filled(await completion("no gap", **fields)).rules
    assert plain == msgspec.structs.replace(rules, trim_suffix=False, repetition=False)


async def test_a_gap_that_the_client_laid_out_is_the_gap_of_infill() -> None:
    one, other = await infill(), await completion()
    assert one.generation.prompt == other.generation.prompt
    assert filled(one).suffix == filled(other).suffix == "\n"


async def test_a_gap_is_text_where_the_model_says_so_or_fills_none() -> None:
    chat = Tokenizer.load(MODELS / "slipstream-chat")
    for tokenizer, fim in ((CODE, {"rendered": "pass"}), (chat, {})):
        prepared = await completion(where=target(tokenizer, fim=fim))
        assert prepared.gap is None
        assert prepared.generation.prompt == TextPrompt((tuple(tokenizer.encode(RENDERED)),))
        assert filled(prepared).rules == StopRules(trim_suffix=False, repetition=False)


async def test_every_completion_is_reserved_and_only_one_for_a_warm_up() -> None:
    one, three, warm = await infill(n_predict=8), await infill(n_predict=8, n_cmpl=3), await infill(n_predict=0, n=3)
    assert cost_tokens(three) == one.prompt_tokens + 24
    assert cost_tokens(warm) == one.prompt_tokens + 1
    assert filled(three).details == Wanted(several=True)
    assert filled(warm).warm_up
    assert filled(await completion("no gap", n_predict=0)).warm_up


@pytest.mark.parametrize(
    ("fields", "temperature"), [({}, 0.0), ({"temperature": 0.7}, 0.7), ({"n_cmpl": 2}, None), ({"n": 1}, 0.0)]
)
async def test_infill_takes_the_likeliest_token_unless_it_is_told_otherwise(
    fields: dict[str, Any], temperature: float | None
) -> None:
    assert (await infill(**fields)).generation.sampling.temperature == temperature
    assert (await completion(temperature=temperature)).generation.sampling.temperature == temperature
