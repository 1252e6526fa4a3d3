"""Our draft heads in the real SGLang: it loads them, they guess right, and its greedy text stays the model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engines.drivers.base import EngineRequest
from engines.embedded.models.registry import load_model
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.forward import forward
from tests.sglang.server import MODELS, settings, sglang_server

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]
TOKENS = 48
LEAST_PER_CHECK = 1.2
"""Tokens kept of one and three guesses; 1 is what a head that knows nothing gives."""
EPSILON = 0.1
"""Of log probabilities: SGLang computes in bfloat16, so of two tokens that are so close either may be the likeliest."""
QUESTIONS = ("What is the capital of France?", "Who are you?", "What is 12 + 7?", "List three colours.")


def prompts(folder: Path) -> list[list[int]]:
    """Questions for the chat model, beginnings of this folder's files for the other."""
    tokenizer = Tokenizer.load(folder)
    if tokenizer.has_chat_template:
        return [tokenizer.chat_ids([{"role": "user", "content": text}]) for text in QUESTIONS]
    return [tokenizer.encode(path.read_text())[:96] for path in sorted(Path(__file__).parent.glob("test_*.py"))[:4]]


@pytest.mark.parametrize("name", ["slipstream-chat", "slipstream-code"])
async def test_sglang_guesses_with_our_head(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    folder = MODELS / name
    monkeypatch.setenv("SPEC", "1")  # the script's: attention that can check guesses
    flags = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(folder / "draft"))
    shape = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4")
    asked = prompts(folder)
    connections = EngineConnections(OneKey("engine-token"))
    try:
        async with sglang_server(folder, name, "engine-token", *flags, *shape) as server:
            answers = [await generate(connections, server.url, prompt) for prompt in asked]
    finally:
        await connections.close()
    checks = sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    assert sum(len(answer["output_ids"]) for answer in answers) >= LEAST_PER_CHECK * checks
    model = load_model(folder, "float32")
    for prompt, answer in zip(asked, answers, strict=True):
        output = answer["output_ids"]
        assert len(output) == TOKENS
        # what our engine thinks of each token, given those before it
        laws = forward(model, prompt + output, 512)[len(prompt) - 1 : -1].log_softmax(-1)
        chosen = laws.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert (laws.amax(-1) - chosen).max() < EPSILON


async def generate(connections: EngineConnections, url: str, prompt: list[int]) -> Any:
    """By SGLang's own endpoint, which tells token ids."""
    sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    body = msgspec.json.encode({"input_ids": prompt, "sampling_params": sampling})
    # the first guess takes half a minute
    status, answer = await connections.fetch(url, EngineRequest("POST", "/generate", body), 300)
    assert status == 200, answer
    return msgspec.json.decode(answer)
