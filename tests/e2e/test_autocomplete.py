"""Editors against a whole deployment on the shipped code model: each shape is answered, metered and stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from gateway.wire.fill.stop_rules import StopRules
from tests.deployment import Deployment
from tests.gateway.wire.fill.naive_stop_rules import cut

CODE = "slipstream-code"
BEFORE, AFTER = "def add(a, b):\n    return ", "\n\n\nprint(add(1, 2))\n"
FIM: dict[str, Any] = {"model": CODE, "prompt": BEFORE, "suffix": AFTER, "max_tokens": 12, "temperature": 0}


@pytest.fixture
async def session(embedded: Deployment) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(embedded.url, headers={"x-api-key": embedded.key}) as made:
        yield made


async def filled(client: openai.AsyncOpenAI, **fields: Any) -> str:
    answer = await client.completions.create(model=CODE, max_tokens=12, temperature=0, **fields)
    return str(answer.choices[0].text)


def told(raw: str, *, stream: bool) -> str:
    """The text of an answer in Mistral's shape."""
    if not stream:
        return str(msgspec.json.decode(raw)["choices"][0]["message"]["content"])
    chunks = [msgspec.json.decode(event.removeprefix("data: ")) for event in raw.split("\n\n")[:-2]]
    return "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)


async def test_a_gap_that_the_client_laid_out_is_the_same_gap(client: openai.AsyncOpenAI) -> None:
    text = await filled(client, prompt=BEFORE, suffix=AFTER)

    assert text
    assert await filled(client, prompt=f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>") == text
    assert await filled(client, prompt=f"<PRE> {BEFORE} <SUF>{AFTER} <MID>") == text


async def test_a_file_longer_than_the_context_is_completed(client: openai.AsyncOpenAI) -> None:
    lines = "".join(f"VALUE_{number} = {number}\n" for number in range(8_000))
    answer = await client.completions.create(
        model=CODE, prompt=lines + BEFORE, suffix=AFTER + lines, max_tokens=12, temperature=0
    )

    assert answer.usage is not None
    assert 7_000 < answer.usage.prompt_tokens <= 8_192 - 12


async def test_mistrals_shape_is_answered_whole_and_streamed_by_a_key_of_its_own_header(
    session: aiohttp.ClientSession, embedded: Deployment
) -> None:
    async with session.post("/v1/fim/completions", json=FIM) as response:
        whole = await response.json()
        whole_id = response.headers["x-request-id"]
    assert response.status == 200
    async with session.post("/v1/fim/completions", json={**FIM, "stream": True}) as response:
        stream_id = response.headers["x-request-id"]
        events = (await response.text()).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [msgspec.json.decode(event.removeprefix("data: ")) for event in events[:-2]]
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert text
    # how far the engine got before a rule's end reached it may differ
    for request_id, usage in ((whole_id, whole["usage"]), (stream_id, chunks[-1]["usage"])):
        [row] = await embedded.ledger(request_id)
        assert (row["prompt_tokens"], row["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])


async def test_a_layout_is_fitted_to_a_folders_own_lines(embedded: Deployment, tmp_path: Path) -> None:
    for name in ("one", "two"):
        lines = "".join(f"{name}_{number} = sum(range({number}))\n" for number in range(20))
        (tmp_path / f"{name}.py").write_text(f"import math\n\n\n{lines}")
    given = ("--from", str(tmp_path), "--lines", "4", "--layouts", "psm", "--json")
    said = await embedded.command("usage", "autocomplete", "fit", CODE, *given)
    report = msgspec.json.decode(said.splitlines()[-1])
    assert report["healed"]["how"] == "word"
    assert report["healed"]["lines"] > 0
    verdict = report["verdict"]
    assert (verdict["present"], verdict["layout"], report["settings"]) == ("spm-after", "spm-after", [])
    computed = {each["layout"]: each["computed_tokens"] for each in verdict["standings"]}
    assert computed["spm-after"] <= 4 < computed["psm"], "psm computes the suffix again for each key"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import os\n" * 10, "\n"),  # the model begins to repeat itself
        (
            "def add(a, b):\n    total = a + b\n",
            "\n\ndef sub(a, b):\n    total = a - b\n    return total\n",
        ),
    ],
)
async def test_what_a_stop_rule_ends_is_stopped_counted_and_complete(
    client: openai.AsyncOpenAI, session: aiohttp.ClientSession, embedded: Deployment, before: str, after: str
) -> None:
    asked: dict[str, Any] = {"model": CODE, "prompt": before, "suffix": after, "max_tokens": 1_200, "temperature": 0}
    raw = (await client.completions.create(**asked)).choices[0].text
    wanted = cut(raw, StopRules(), after)
    assert len(wanted) < len(raw) // 2
    async with session.post("/v1/fim/completions", json=asked) as response:
        answer = await response.json()
        assert response.status == 200, answer
        request_id = response.headers["x-request-id"]

    assert answer["choices"][0]["message"]["content"] == wanted
    assert answer["choices"][0]["finish_reason"] == "stop"
    [row] = await embedded.ledger(request_id)
    assert (row["status"], row["finish"], row["billed"]) == (200, "complete", True)
    assert row["completion_tokens"] == answer["usage"]["completion_tokens"] < 1_200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_that_the_model_is_not_sure_of_is_empty_and_paid_for(
    session: aiohttp.ClientSession, embedded: Deployment, stream: bool
) -> None:
    asked = {**FIM, "stream": stream}
    for least, shown in ((0.01, True), (0.999, False)):
        async with session.post("/v1/fim/completions", json={**asked, "min_confidence": least}) as response:
            raw = await response.text()
            assert response.status == 200, raw
        assert (told(raw, stream=stream) != "") is shown
        [row] = await embedded.ledger(response.headers["x-request-id"])
        assert (row["status"], row["finish"], row["billed"]) == (200, "complete", True)
        assert row["completion_tokens"] > 0


async def test_the_model_writes_as_many_tokens_as_are_asked_for_at_least(session: aiohttp.ClientSession) -> None:
    used, gap = {}, {"prompt": "import os\n\nx = 1", "suffix": "\n"}
    for least in (0, 12):
        async with session.post("/v1/fim/completions", json={**FIM, **gap, "min_tokens": least}) as response:
            used[least] = (await response.json())["usage"]["completion_tokens"]
    assert used[0] < used[12] == 12, used


async def test_the_old_engines_route_takes_the_model_from_its_path(embedded: Deployment) -> None:
    base_url = f"{embedded.url}/v1/engines/{CODE}"
    async with openai.AsyncOpenAI(base_url=base_url, api_key=embedded.key, max_retries=0) as client:
        raw = await client.completions.with_raw_response.create(
            model=CODE, prompt=BEFORE, suffix=AFTER, max_tokens=12, temperature=0
        )
    assert raw.parse().model == CODE
    [row] = await embedded.ledger(raw.headers["x-request-id"])
    assert row["completion_tokens"] > 0
    unknown = f"{embedded.url}/v1/engines/gpt-9/completions"
    headers = {"authorization": f"Bearer {embedded.key}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(unknown, json={"prompt": "x"}) as answer:
        refusal = await answer.json()
    assert answer.status == 404
    assert refusal["error"]["code"] == "model_not_found"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(unknown) as answer:
        assert answer.status == 405
