"""The real SGLang writes the opening that it is given, and a gap's reader gets what follows. Then the tokens that a
keystroke computes there, in Qwen2.5-Coder's order."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.generation import Generation, TextPrompt
from engines.drivers.error_bodies import usage_of
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest
from tests.gateway.wire.openai.preparing import CALLER, target
from tests.psm_model import write_psm_model
from tests.real_engine import ask, payloads, read_all, text_of
from tests.sglang.client import Client
from tests.sglang.server import settings, sglang_server

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]
PREFIX = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(25))
SUFFIX = "\n\n" + PREFIX.replace("value", "other")
LINE = "    return self.function_names(value, offset)"
OPENINGS = [" retu", "Nam", "(", " off", "é", '["', "  ", "\\."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_psm_model(tmp_path_factory.mktemp("psm") / "code")


@pytest.fixture(scope="module")
async def coder(folder: Path) -> AsyncIterator[Client]:
    """The shipped code model, laid out as Qwen2.5-Coder is."""
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    async with sglang_server(folder, "code", "engine-token") as server:
        connections = EngineConnections(OneKey(server.token))
        yield Client(server, connections)
        await connections.close()


async def raw(engine: Client, generation: Generation) -> list[Any]:
    """The engine's own events, opening and all."""
    request = msgspec.structs.replace(engine.driver.generate(generation, engine.model), opening="")
    return payloads(await read_all(await engine.connections.open(engine.url, request)))


@pytest.mark.parametrize("opening", OPENINGS)
async def test_what_it_is_forced_to_write_is_cut_off_once(coder: Client, folder: Path, opening: str) -> None:
    ids = tuple(Tokenizer.load(folder).plain_ids("def add(left, right):\n    x ="))
    prompt = TextPrompt((ids,), begins_with=opening)
    several: dict[str, Any] = {"n": 2, "temperature": 0.9}
    for more in ({}, several):
        generation = ask(prompt, max_tokens=12, logprobs=1, **more)
        events = await coder.events(generation)
        whole = await raw(coder, msgspec.structs.replace(generation, request_id=generation.request_id + "b"))
        for index in range(generation.choices):
            assert text_of(whole, index).startswith(opening)
            if not more:
                assert opening + text_of(events, index) == text_of(whole, index)
                counts = [usage_of(one[-2]["usage"]).completion_tokens for one in (events, whole)]
                assert counts[0] == counts[1] > 0, "the engine's own count, opening included"
        choices = [choice for event in events[:-1] for choice in event["choices"] if choice["index"] == 0]
        names = "".join(name for one in choices if one["logprobs"] for name in one["logprobs"]["tokens"])
        assert text_of(events).rstrip("\ufffd") in names or not opening.isascii(), "an end token may be named behind it"


async def test_a_keystroke_computes_the_line_where_it_comes_last_and_else_the_suffix_once_a_word(
    coder: Client, folder: Path
) -> None:
    tokenizer = Tokenizer.load(folder)
    computed: dict[tuple[str, bool], list[int]] = {}
    for typed_line in ("after_middle", "before_middle"):
        for healing in (True, False):
            fim = {"healing": healing, "typed_line": typed_line}
            where, salt = target(tokenizer, "sglang", context_tokens=8_000, fim=fim), f"{typed_line}{healing}"
            keys = computed[typed_line, healing] = []
            for typed in range(len(LINE)):
                asked = FillRequest(model="m", prefix=PREFIX + LINE[:typed], suffix=SUFFIX, temperature=0.0)
                prepared = await prepare_fill(asked, f"{salt}-{typed}", CALLER, salt, where)
                usage = await coder.usage(prepared.generation)
                keys.append(usage.prompt_tokens - usage.cached_tokens)
    suffix = len(tokenizer.plain_ids(SUFFIX))
    dear = {way: sum(key >= suffix for key in keys[1:]) for way, keys in computed.items()}
    for way, keys in computed.items():
        print(way, "p50", statistics.median(keys[1:]), "mean", statistics.mean(keys[1:]), "dear", dear[way], len(keys))
    for healing in (True, False):
        assert max(computed["after_middle", healing][1:]) <= 16
    assert dear["before_middle", False] == len(LINE) - 1, "every keystroke computes the suffix"
    assert 0 < dear["before_middle", True] < len(LINE) / 2, "within a word, the prompt stays the same"
