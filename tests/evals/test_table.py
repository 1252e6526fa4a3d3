"""The table is made of what an endpoint answers over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner

from evals.chats import CHATS, transcript
from evals.endpoint import Endpoint
from evals.slices.catalogue import Catalogue
from evals.slices.registry import find
from evals.slices.split import RESERVED_FROM_SEED, Split
from evals.table import main, measure
from tests.evals import published
from tests.serving import serving

ITEMS = 8


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """Knows the references of the facts, says "no" to everything else; refuses the model "missing", and each question
    to "busy" the first time."""
    items = [find("facts").item(seed, Split.HELD_OUT) for seed in range(ITEMS)]
    turned_away: set[str] = set()
    known = {json.dumps(item.messages): item.reference for item in items[1:]}

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        if body["model"] == "busy" and (key := json.dumps(body["messages"])) not in turned_away:
            turned_away.add(key)
            return web.json_response({"error": {"message": "full"}}, status=503, headers={"Retry-After": "0"})
        if body["model"] == "missing":
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        assert request.headers["authorization"] == "Bearer key"
        assert body["temperature"] == 0
        text = known.get(json.dumps(body["messages"]), f"no, {len(body['messages'])}")
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": text}}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with serving(app) as url:
        yield Endpoint(f"{url}/v1", "key", "fake", at_once=3)


async def test_right_and_wrong_answers_are_counted_and_the_wrong_ones_kept(endpoint: Endpoint, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    facts, greetings = await measure(endpoint, [find("facts"), find("repeat")], ITEMS, wrong)
    assert (facts.right, facts.items) == (ITEMS - 1, ITEMS)
    assert (greetings.right, greetings.items) == (0, ITEMS)
    kept = [json.loads(line) for line in wrong.read_text().splitlines()]
    assert [one["slice"] for one in kept] == ["facts"] + ["repeat"] * ITEMS
    assert kept[0]["got"] == "no, 1"


async def test_an_endpoint_that_fails_makes_no_table(endpoint: Endpoint) -> None:
    missing = Endpoint(endpoint.url, "key", "missing")
    with pytest.raises(aiohttp.ClientError, match=r"404.*no such model"):
        await measure(missing, [find("facts")], ITEMS)


async def test_what_is_full_for_now_is_asked_again(endpoint: Endpoint) -> None:
    (facts,) = await measure(Endpoint(endpoint.url, "key", "busy"), [find("facts")], ITEMS)
    assert (facts.right, facts.items) == (ITEMS - 1, ITEMS)


async def test_a_wrong_model_is_told_in_a_line(endpoint: Endpoint) -> None:
    command = [endpoint.url, "--model", "missing", "--slices", "facts", "--items", "1"]
    said = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert said.exit_code == 1
    assert said.output.startswith("Error: ")
    assert "404" in said.output


async def test_reserved_items_are_others_and_their_wrong_answers_are_not_kept(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    (facts,) = await measure(endpoint, [find("facts")], ITEMS, first_seed=RESERVED_FROM_SEED)
    assert (facts.right, facts.items) == (0, ITEMS), "the endpoint knows the first items only"
    asked = CliRunner().invoke(main, [endpoint.url, "--reserved", "--wrong", str(tmp_path / "wrong.jsonl")])
    assert asked.exit_code == 2
    assert "--wrong" in asked.output


async def test_of_a_file_at_most_all_is_asked(endpoint: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "gsm8k.jsonl").write_text(published.lines(published.GSM8K))
    one = Catalogue(tmp_path).find("gsm8k")
    (few,) = await measure(endpoint, [one], 2, first_seed=RESERVED_FROM_SEED)
    (every,) = await measure(endpoint, [one], 100)
    assert (few.items, every.items) == (2, 3)


async def test_a_conversation_goes_on_from_its_answers(endpoint: Endpoint) -> None:
    shown = await transcript(endpoint)
    assert shown.count("\n---\n") == len(CHATS) - 1
    # The second question of a chat is sent with the first and its answer.
    assert "> who are you?\n\n    no, 3" in shown
