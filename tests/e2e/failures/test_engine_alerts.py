"""Alerts of engines that have too little memory for what they are asked, on real ones."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from infra.local.folders import DataFolder
from tests.deployment import Deployment, deployment
from tests.e2e.failures.alert_world import again_and_again, fires
from tests.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.nightly
SPEED = 60
MEMORY_BYTES = 1 << 22
"""Holds 1,024 tokens of the shipped chat model and 1,360 of the code model, in 16 bits."""
CONTEXT_TOKENS = 1_024
PROMPT_TOKENS = 1_000
FILES = 12
FILE_LINES = 30
"""Some 300 tokens."""


@pytest.fixture
async def small() -> AsyncIterator[tuple[Deployment, Prometheus]]:
    """The shipped models on engines with little memory, which promise little of it for answers."""
    environment = {
        "SLIPSTREAM_LOCAL__CHAT_CONTEXT_TOKENS": str(CONTEXT_TOKENS),
        "SLIPSTREAM_LOCAL__CODE_CONTEXT_TOKENS": str(CONTEXT_TOKENS),
        "SLIPSTREAM_ENGINE__DTYPE": "bfloat16",  # auto is float32 on processors that do not multiply in it
        "SLIPSTREAM_ENGINE__KV__BUDGET_BYTES": str(MEMORY_BYTES),
        "SLIPSTREAM_ENGINE__SCHEDULER__OUTPUT_RESERVE": "0.02",
    }
    async with (
        deployment(environment=environment) as running,
        prometheus(DataFolder(running.data).prometheus_targets, speed=SPEED) as watching,
    ):
        yield running, watching


async def test_long_prompts_that_nobody_routes(small: tuple[Deployment, Prometheus]) -> None:
    """Asked at the engine itself: the router gives an engine no more than it can hold."""
    running, watching = small
    data = DataFolder(running.data)
    port = msgspec.json.decode(data.ports_file.read_bytes())["engine-chat-1"]
    headers = {"authorization": f"Bearer {data.token_file.read_text().strip()}"}
    prompt = [5 + number % 100 for number in range(PROMPT_TOKENS)]
    body = {"model": "slipstream-chat", "prompt": prompt, "max_tokens": 20, "ignore_eos": True}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:

        async def ask() -> None:
            async with session.post("/v1/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()

        await fires(watching, "KvMemoryNearlyFull", "SequencesAreRetracted", among=False)
        async with again_and_again(ask, 6):
            await fires(watching, "KvMemoryNearlyFull", "SequencesAreRetracted")


async def test_more_files_than_an_engine_keeps(small: tuple[Deployment, Prometheus]) -> None:
    running, watching = small
    headers = {"authorization": f"Bearer {running.key}"}
    keystrokes = itertools.count()
    async with aiohttp.ClientSession(running.url, headers=headers) as session:

        async def types(file: int) -> None:
            above = "".join(f"import module_{file}_{line}\n" for line in range(FILE_LINES))
            line = "value = compute("[: 1 + file % 10]
            body = {
                "model": "slipstream-code",
                "input_prefix": above,
                "prompt": line,
                "input_suffix": "",
                "n_predict": 1,
            }
            async with session.post("/infill", json=body) as answer:
                assert answer.status == 200, await answer.text()

        async def next_file() -> None:
            await types(next(keystrokes) % FILES)

        await types(0)
        await types(0)  # until something was found it is not known that the engine tells it
        await fires(watching, "FilesAreForgottenBetweenKeystrokes", among=False)
        async with again_and_again(next_file):
            await fires(watching, "FilesAreForgottenBetweenKeystrokes")
