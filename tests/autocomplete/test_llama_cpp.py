"""llama.cpp's endpoints over HTTP: what ends a completion, what a client gets of it, and refusals as it reads them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.autocomplete.asked import engine_record, other_files, sides, tokenizer
from tests.autocomplete.clients import events
from tests.gateway.slow_platform import SlowPlatform

INFILL = {"input_prefix": "def f():\n", "prompt": "    x", "input_suffix": "\n\nf()\n"}
FIELDS = ["content", "stop_type", "tokens_predicted"]


class Answered(msgspec.Struct, frozen=True):
    status: int
    request_id: str
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.raw)


async def post(platform: SlowPlatform, path: str, key: str | None = None, **fields: Any) -> Answered:
    headers = {"authorization": f"Bearer {platform.key if key is None else key}"}
    async with platform.session.post(platform.url + path, data=msgspec.json.encode(fields), headers=headers) as answer:
        told = {name.lower(): value for name, value in answer.headers.items()}
        return Answered(answer.status, told["x-request-id"], told, await answer.read())


async def says(platform: SlowPlatform, *texts: str, path: str = "/infill", **fields: Any) -> Answered:
    """Answered by a model that writes these tokens, and then others."""
    await platform.engine.control(texts=texts, tokens=len(texts) + 40)
    try:
        return await post(platform, path, **fields)
    finally:
        await platform.engine.control(texts=(), tokens=16)


async def test_a_line_that_is_indented_less_ends_the_answer_and_the_engine(platform: SlowPlatform) -> None:
    texts = (" = 1", "\n", "    ", "y = 2", "\n", "z", " = 3")
    answer = await says(platform, *texts, **INFILL, n_indent=4, n_predict=40, response_fields=FIELDS)
    assert answer.json["content"] == " = 1\n    y = 2"
    assert answer.json["stop_type"] == "eos"
    charge = await platform.charge(answer.request_id)
    made = await engine_record(platform, answer.request_id)
    assert (charge["endpoint"], charge["status"], charge["outcome"]) == ("infill", 200, "exact")
    assert charge["completion_tokens"] == made["tokens"]


async def test_a_warm_up_asks_for_one_token_and_answers_with_none(platform: SlowPlatform) -> None:
    answer = await says(platform, "secret", **INFILL, n_predict=0)
    assert answer.status == 200
    assert answer.json["content"] == ""
    made = await engine_record(platform, answer.request_id)
    assert made["body"]["max_tokens"] == made["tokens"] == 1
    assert sides(made["body"]["prompt"]) == ("def f():\n    x", "\n\nf()\n")


async def test_other_files_stand_before_the_file(platform: SlowPlatform) -> None:
    extra = [{"text": "def g():\n    pass\n", "filename": "g.py", "time": 1}]
    answer = await says(platform, "1", **INFILL, input_extra=extra)
    prompt = (await engine_record(platform, answer.request_id))["body"]["prompt"]
    assert "def g():" in other_files(prompt)
    assert sides(prompt)[0] == "def f():\n    x"


async def test_crlf_comes_back_as_crlf(platform: SlowPlatform) -> None:
    gap = {"input_prefix": "a = 1\r\n", "prompt": "b", "input_suffix": "\r\nc\r\n"}
    answer = await says(platform, " = 2", "\n", "d", **gap, n_predict=3, response_fields=["content"])
    assert answer.raw == b'{"content":" = 2\\r\\nd"}'
    assert sides((await engine_record(platform, answer.request_id))["body"]["prompt"]) == ("a = 1\nb", "\nc\n")


async def test_a_prompt_without_a_gap_is_continued_as_it_is(platform: SlowPlatform) -> None:
    text = "def f():\n    return <|fim_middle|>"
    answer = await says(platform, " 1", "\n", path="/completion", prompt=text, n_predict=2, stop=["", "!"])
    asked = (await engine_record(platform, answer.request_id))["body"]
    assert asked["prompt"] == tokenizer().encode(text)
    assert asked["stop"] == ["!"]
    assert answer.json["content"] == " 1\n"
    assert (answer.json["stop"], answer.json["stop_type"], answer.json["tokens_predicted"]) == (True, "limit", 2)
    ids = await says(platform, " 1", path="/completion", prompt=tokenizer().encode(text), n_predict=1)
    assert (await engine_record(platform, ids.request_id))["body"]["prompt"] == tokenizer().encode(text)


async def test_penalties_are_passed_on(platform: SlowPlatform) -> None:
    wanted = {"presence_penalty": 0.5, "frequency_penalty": 0.25, "temperature": 0.1, "top_p": 0.9, "seed": 7}
    for path, fields in (("/infill", INFILL), ("/completion", {"prompt": "x"})):
        answer = await says(platform, "1", path=path, **fields, **wanted)
        asked = (await engine_record(platform, answer.request_id))["body"]
        assert {name: asked[name] for name in wanted} == wanted


async def test_a_stream_that_breaks_off_ends_with_an_error_event(platform: SlowPlatform) -> None:
    await platform.engine.control(error_after_tokens=2)
    try:
        answer = await post(platform, "/completion", prompt="x", n_predict=8, stream=True)
    finally:
        await platform.engine.control(error_after_tokens=-1)
    *_, last = answer.raw.decode().strip().split("\n\n")
    error = msgspec.json.decode(last.removeprefix("data: "))["error"]
    assert (error["code"], error["type"]) == (502, "server_error")


async def test_a_stream_has_no_text_in_its_last_event(platform: SlowPlatform) -> None:
    answer = await says(platform, "a", "b", path="/completion", prompt="x", n_predict=2, stream=True)
    *texts, last = events(answer.raw)
    assert "".join(event["content"] for event in texts) == "ab"
    assert (last["content"], last["stop"], last["tokens_predicted"]) == ("", True, 2)
    assert b"[DONE]" not in answer.raw


async def test_several_completions_are_streamed_and_all_are_paid_for(platform: SlowPlatform) -> None:
    answer = await says(
        platform, "a", "\n", "b", **INFILL | {"input_suffix": ")\n"}, n_cmpl=2, n_predict=3, stream=True
    )
    told = list(events(answer.raw))
    for index in (0, 1):
        own = [event for event in told if event["index"] == index]
        assert "".join(event["content"] for event in own) == "a", "something stands behind the cursor: one line"
        assert [event["stop"] for event in own] == [False] * (len(own) - 1) + [True]
    charge = await platform.charge(answer.request_id)
    made = await engine_record(platform, answer.request_id)
    assert (charge["status"], charge["outcome"]) == (200, "exact")
    assert charge["completion_tokens"] == made["tokens"]


async def test_a_completion_is_judged_by_what_the_engine_tells_of_it(platform: SlowPlatform) -> None:
    for least, content in ((0.6, " = 1"), (0.7, "")):  # the fake's tokens have exp(-0.5) each
        answer = await says(platform, " = 1", **INFILL, n_predict=1, min_confidence=least)
        assert answer.json["content"] == content
        assert (await engine_record(platform, answer.request_id))["body"]["logprobs"] == 1
        assert (await platform.charge(answer.request_id))["completion_tokens"] == 1


@pytest.mark.parametrize(
    ("fields", "status", "kind", "told"),
    [
        ({**INFILL, "n_predcit": 1}, 400, "invalid_request_error", "'n_predcit'"),
        ({**INFILL, "n_predict": "many"}, 400, "invalid_request_error", "'n_predict'"),
        ({**INFILL, "stop": ["x"] * 17}, 400, "invalid_request_error", "'stop'"),
        ({**INFILL, "grammar": "root ::= x"}, 400, "invalid_request_error", "'grammar'"),
        ({**INFILL, "model": "gpt-4"}, 404, "not_found_error", "'gpt-4' does not exist"),
        ({"input_prefix": ""}, 400, "invalid_request_error", "'input_suffix'"),
    ],
)
async def test_a_refusal_is_in_llama_cpps_shape_and_names_the_field(
    platform: SlowPlatform, fields: dict[str, Any], status: int, kind: str, told: str
) -> None:
    answer = await post(platform, "/infill", **fields)
    assert answer.status == status
    assert list(answer.json) == ["error"]
    error = answer.json["error"]
    assert (error["code"], error["type"]) == (status, kind)
    assert set(error) == {"code", "message", "type"}
    assert told in error["message"]


async def test_a_wrong_key_and_a_wrong_body_are_refused_in_that_shape_too(platform: SlowPlatform) -> None:
    answer = await post(platform, "/infill", key="sk-slip-nobody", **INFILL)
    assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")
    headers = {"authorization": f"Bearer {platform.key}"}
    async with platform.session.post(f"{platform.url}/completion", data=b"{", headers=headers) as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"], error["type"]) == (400, 400, "invalid_request_error")
