"""The real vLLM writes the opening that it is given, and a gap's reader gets what follows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.generation import TextPrompt
from engines.drivers.error_bodies import usage_of
from engines.tokenizer.tokenizer import Tokenizer
from tests.real_engine import RealEngine, ask, payloads, read_all, text_of
from tests.vllm.server import FOLDER

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.mark.parametrize("opening", [" retu", "Nam", "(", "é", '["', "  ", "\\."])
async def test_what_it_is_forced_to_write_is_cut_off_once(engine: RealEngine, opening: str) -> None:
    ids = tuple(Tokenizer.load(FOLDER).plain_ids("The capital of France"))
    several: dict[str, Any] = {"n": 2, "temperature": 0.9}
    for more in ({}, several):
        generation = ask(TextPrompt((ids,), begins_with=opening), max_tokens=12, logprobs=1, **more)
        events = await engine.events(generation)
        again = msgspec.structs.replace(generation, request_id=generation.request_id + "b")
        request = msgspec.structs.replace(engine.driver.generate(again, engine.model), opening="")
        whole = payloads(await read_all(await engine.connections.open(engine.url, request)))
        for index in range(generation.choices):
            assert text_of(whole, index).startswith(opening)
            if not more:
                assert opening + text_of(events, index) == text_of(whole, index)
                counts = [usage_of(one[-2]["usage"]).completion_tokens for one in (events, whole)]
                assert counts[0] == counts[1] > 0, "the engine's own count, opening included"
        choices = [choice for event in events[:-1] for choice in event["choices"] if choice["index"] == 0]
        names = "".join(name for one in choices if one["logprobs"] for name in one["logprobs"]["tokens"])
        assert text_of(events).rstrip("\ufffd") in names or not opening.isascii(), "an end token may be named behind it"
