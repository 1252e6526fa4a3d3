"""Gaps under OpenAI's endpoints: as the model writes them, or by the rules of editors' formats."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.client_family import EDITORS, ClientFamily
from contracts.errors import InvalidField, UnsupportedField
from contracts.generation import TextPrompt
from engines.drivers.error_bodies import engine_error
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.fill.request import Filled
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.format import Transcoder
from gateway.wire.openai.format import CompletionFormat
from gateway.wire.prepared import Prepared
from gateway.wire.usage_tracker import UsageTracker
from tests.gateway.wire.openai.preparing import CALLER, target

FORMAT = CompletionFormat(RequestConfig())
GAP = {"prompt": "def f(a):\r\n    x = f(", "suffix": ")\r\n"}
RENDERED = {"prompt": f"<fim_prefix>{GAP['prompt']}<fim_suffix>{GAP['suffix']}<fim_middle>"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


async def prepare(
    tokenizer: Tokenizer, fields: dict[str, Any], client: ClientFamily = "other", **model: Any
) -> Prepared:
    asked = FORMAT.decode(msgspec.json.encode({"model": "m", **fields}))
    where = msgspec.structs.replace(target(tokenizer, context_tokens=400, **model), client=client)
    return await FORMAT.prepare(asked, "req_1", CALLER, "salt", where)


def answer(prepared: Prepared, *texts: str) -> tuple[Transcoder, bytes]:
    transcoder = FORMAT.transcoder("req_1", prepared, UsageTracker(1), engine_error)
    event = {"id": "e", "object": "text_completion", "created": 5, "model": "x"}
    sent = b""
    for number, text in enumerate(texts):
        reason = "stop" if number == len(texts) - 1 else None
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        sent += transcoder.feed(b"data: " + msgspec.json.encode({**event, "choices": [choice]}) + b"\n\n")
    last = {**event, "choices": [], "usage": USAGE}
    sent += transcoder.feed(b"data: " + msgspec.json.encode(last) + b"\n\ndata: [DONE]\n\n")
    return transcoder, sent + transcoder.finish()


@pytest.mark.parametrize("gap", [GAP, RENDERED])
async def test_without_the_setting_the_model_ends_and_line_ends_stay(
    code_tokenizer: Tokenizer, gap: dict[str, Any]
) -> None:
    prepared = await prepare(code_tokenizer, gap)
    assert prepared.details is None
    assert prepared.generation.prompt == TextPrompt(
        (tuple(code_tokenizer.fill_ids(GAP["prompt"], GAP["suffix"])),), filled_gap=True
    )
    _, raw = answer(prepared, "a)", "\r\ny = 1")
    assert msgspec.json.decode(raw)["choices"][0]["text"] == "a)\r\ny = 1"
    assert set(prepared.generation.sampling.stop_ids) >= {1, 2, 3}, "its family's ends are the model's own"


@pytest.mark.parametrize("gap", [GAP, RENDERED])
async def test_with_it_they_are_an_editors_gaps(code_tokenizer: Tokenizer, gap: dict[str, Any]) -> None:
    prepared = await prepare(code_tokenizer, {**gap, "logit_bias": {"5": -1}}, fim={"rules": "all"})
    assert prepared.generation.prompt == TextPrompt(
        (tuple(code_tokenizer.fill_ids("def f(a):\n    x = f(", ")\n")),), filled_gap=True
    )
    assert prepared.generation.sampling.max_tokens == 16, "OpenAI's default stays"
    assert prepared.generation.sampling.logit_bias == {"5": -1}
    assert isinstance(prepared.details, Filled)
    assert (prepared.details.rules, prepared.details.newline) == (StopRules(single_line=True), "\r\n")

    transcoder, raw = answer(prepared, "a", ")", "\ny = 1")
    assert transcoder.complete
    told = msgspec.json.decode(raw)
    assert told["choices"] == [{"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"}]
    assert told["usage"]["total_tokens"] == 12
    assert (told["id"], told["object"], told["model"]) == ("cmpl-1", "text_completion", "m")


@pytest.mark.parametrize("gap", [GAP, RENDERED])
async def test_a_known_editors_gaps_end_by_the_rules_without_the_setting(
    code_tokenizer: Tokenizer, gap: dict[str, Any]
) -> None:
    for client in EDITORS:
        prepared = await prepare(code_tokenizer, gap, client)
        assert isinstance(prepared.details, Filled)
        assert (prepared.details.rules, prepared.details.newline) == (StopRules(single_line=True), "\r\n")
    for script in ("openai-python", "curl", "other"):
        assert (await prepare(code_tokenizer, gap, script)).details is None
    assert (await prepare(code_tokenizer, {**gap, "n": 2}, "zed")).details is None
    assert (await prepare(code_tokenizer, {"prompt": "x = "}, "zed")).details is None, "no gap"


async def test_such_a_stream_is_openais(code_tokenizer: Tokenizer) -> None:
    asked = {"prompt": "if x:\r\n    ", "suffix": "\r\n", "stream": True, "stream_options": {"include_usage": True}}
    prepared = await prepare(code_tokenizer, asked, fim={"rules": "all"})
    _, raw = answer(prepared, "a", "\n    b", "\nc")
    assert raw.endswith(b"data: [DONE]\n\n")
    events = [msgspec.json.decode(line.removeprefix("data: ")) for line in raw.decode().split("\n\n")[:-2]]
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "a\r\n    b"
    assert [event["usage"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert (events[-1]["choices"], events[-1]["usage"]["completion_tokens"]) == ([], 3)
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


async def test_who_has_typed_is_decided_as_without_it(code_tokenizer: Tokenizer) -> None:
    for fields, typed in ((GAP, False), ({**GAP, "user": "me"}, True), (RENDERED, False)):
        for rules in ("editors", "all"):
            assert (await prepare(code_tokenizer, fields, fim={"rules": rules})).typed is typed


@pytest.mark.parametrize("fields", [{"n": 2}, {"best_of": 2}, {"logprobs": 0}])
async def test_what_an_editor_never_asks_is_answered_as_ever(code_tokenizer: Tokenizer, fields: dict[str, Any]) -> None:
    assert (await prepare(code_tokenizer, {**GAP, **fields}, fim={"rules": "all"})).details is None
    with pytest.raises(UnsupportedField) as refused:
        await prepare(code_tokenizer, {**GAP, **fields, "min_confidence": 0.5})
    assert refused.value.param == "min_confidence"


async def test_the_models_least_confidence_holds_where_editors_rules_do(code_tokenizer: Tokenizer) -> None:
    by_rules = {rules: {"rules": rules, "min_confidence": 0.4} for rules in ("editors", "all")}
    assert (await prepare(code_tokenizer, GAP, fim=by_rules["editors"])).generation.sampling.logprobs is None
    judged = await prepare(code_tokenizer, GAP, fim=by_rules["all"])
    assert isinstance(judged.details, Filled)
    assert judged.details.min_confidence == 0.4
    assert (await prepare(code_tokenizer, {"prompt": "x"}, fim=by_rules["all"])).generation.sampling.logprobs is None
    said = await prepare(code_tokenizer, {**GAP, "min_confidence": 0}, fim=by_rules["all"])
    assert said.generation.sampling.logprobs is None


async def test_a_least_confidence_is_for_gaps_and_brings_the_rules(code_tokenizer: Tokenizer) -> None:
    prepared = await prepare(code_tokenizer, {**GAP, "min_confidence": 0.5})
    assert isinstance(prepared.details, Filled)
    assert prepared.details.min_confidence == 0.5
    assert prepared.generation.sampling.logprobs == 1
    assert (await prepare(code_tokenizer, {**GAP, "min_confidence": 0})).generation.sampling.logprobs is None
    with pytest.raises(InvalidField) as refused:
        await prepare(code_tokenizer, {"prompt": "x", "min_confidence": 0.5})
    assert refused.value.param == "min_confidence"
    with pytest.raises(InvalidField):
        await prepare(code_tokenizer, {**GAP, "min_confidence": 1})
