"""Our draft heads in the real vLLM: it loads them, they guess right, and its greedy text stays the model's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import torch

from contracts.generation import TextPrompt
from engines.drivers.base import EngineRequest
from engines.drivers.vllm import VLLMDriver
from engines.embedded.models.registry import load_model
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.usage_tracker import UsageTracker
from tests.engines.embedded.forward import forward
from tests.real_engine import RealEngine, ask
from tests.sglang.server import MODELS
from tests.vllm.server import TOKEN, venv, vllm_process

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
TOKENS = 48
GUESSES = 3
EPSILON = 0.01
"""Of log probabilities, in float32: of two tokens that are so close either may be the likeliest. In bfloat16 rounding
alone may choose one that is further off, and would hide a guess that was kept wrongly."""
QUESTIONS = ("What is the capital of France?", "Who are you?", "What is 12 + 7?", "List three colours.")


class Guessing(msgspec.Struct):
    """A server that guesses with a head of ours."""

    engine: RealEngine
    folder: Path


@pytest.fixture(scope="module", params=["slipstream-chat", "slipstream-code"])
async def guessing(request: pytest.FixtureRequest) -> AsyncIterator[Guessing]:
    if venv() is None:
        pytest.skip("SLIPSTREAM_TEST_VLLM_VENV is not set")
    folder: Path = MODELS / request.param
    head = {"method": "eagle3", "model": str(folder / "draft"), "num_speculative_tokens": GUESSES}
    flags = (
        "--speculative-config",
        json.dumps(head),
        "--per-request-spec-decode-metrics",
        "summary",
        "--dtype",
        "float32",
    )
    async with vllm_process(*flags, folder=folder) as process:
        connections = EngineConnections(OneKey(TOKEN))
        yield Guessing(RealEngine(VLLMDriver(), process.server.url, process.server.model, connections), folder)
        await connections.close()


def prompts(folder: Path) -> list[tuple[int, ...]]:
    """Questions for the chat model, beginnings of this folder's files for the other."""
    tokenizer = Tokenizer.load(folder)
    if tokenizer.has_chat_template:
        return [tuple(tokenizer.chat_ids([{"role": "user", "content": text}])) for text in QUESTIONS]
    files = sorted(Path(__file__).parent.glob("test_*.py"))[:4]
    return [tuple(tokenizer.encode(path.read_text())[:96]) for path in files]


async def test_vllm_guesses_with_our_head(guessing: Guessing) -> None:
    drafted = kept = 0
    for prompt in prompts(guessing.folder):
        events = await guessing.engine.events(ask(TextPrompt((prompt,)), max_tokens=TOKENS))
        tracker = UsageTracker(1)
        for event in events[:-1]:
            tracker.chunk(event)
        assert tracker.total is not None
        drafted += tracker.total.draft_tokens
        kept += tracker.total.accepted_draft_tokens
    assert 0 < kept <= drafted, "a head that knows nothing guesses nothing right"


async def test_the_text_stays_the_models(guessing: Guessing) -> None:
    model = load_model(guessing.folder, "float32")
    for prompt in prompts(guessing.folder):
        body = {
            "model": guessing.engine.model, "prompt": list(prompt), "max_tokens": TOKENS, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True,
        }  # fmt: skip
        status, answer = await guessing.engine.fetch(
            EngineRequest("POST", "/v1/completions", msgspec.json.encode(body))
        )
        assert status == 200, answer
        output = msgspec.json.decode(answer)["choices"][0]["token_ids"]
        assert len(output) == TOKENS
        # what our engine thinks of each token, given those before it
        laws = forward(model, [*prompt, *output], 512)[len(prompt) - 1 : -1].log_softmax(-1)
        chosen = laws.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert (laws.amax(-1) - chosen).max() < EPSILON
