"""Our draft heads in the real SGLang: it loads them, they guess right, its greedy text stays the model's, and its own
table takes them out of use in a crowd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from contracts.generation import TextPrompt
from engines.drivers.base import EngineRequest
from engines.embedded.models.registry import load_model
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.chunk import decoded
from gateway.wire.usage_tracker import UsageTracker
from tests.engines.embedded.forward import forward
from tests.real_engine import ask
from tests.sglang.client import Client
from tests.sglang.server import MODELS, settings, sglang_server

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]
TOKENS = 48
CROWD = 6
TABLE = {"1": {"candidate_steps": [1, 3]}, str(CROWD - 1): {"candidate_steps": [0]}}
"""By requests at a time: one or three guesses, and none from here on."""
MIN_PER_CHECK = 1.1
"""Tokens kept of one and its guesses; 1 is what a head that knows nothing gives."""
EPSILON = 0.1
"""Of log probabilities: SGLang computes in bfloat16, so of two tokens that are so close either may be the likeliest."""
QUESTIONS = ("What is the capital of France?", "Who are you?", "What is 12 + 7?", "List three colours.")


@pytest.fixture(scope="module", params=["slipstream-chat", "slipstream-code"])
async def guessing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """One of our models with its head, used as the table says."""
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    folder: Path = MODELS / request.param
    table = tmp_path_factory.mktemp("adaptive") / "table.json"
    table.write_bytes(msgspec.json.encode(TABLE))
    # a processor has no graphs, and SGLang would capture one for every step of the table
    flags = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(folder / "draft"),
             "--speculative-adaptive", "--speculative-adaptive-config", str(table), "--disable-cuda-graph")  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEC", "1")  # the script's: attention that can check guesses
        async with sglang_server(folder, request.param, "engine-token", *flags) as server:
            connections = EngineConnections(OneKey(server.token))
            yield Client(server, connections)
            await connections.close()


def prompts(folder: Path) -> list[list[int]]:
    """Questions for the chat model, beginnings of this folder's files for the other."""
    tokenizer = Tokenizer.load(folder)
    if tokenizer.has_chat_template:
        return [list(tokenizer.chat_ids([{"role": "user", "content": text}])) for text in QUESTIONS]
    return [tokenizer.encode(path.read_text())[:96] for path in sorted(Path(__file__).parent.glob("test_*.py"))[:4]]


async def test_sglang_guesses_with_our_head(guessing: Client) -> None:
    folder = guessing.server.folder
    asked = prompts(folder)
    answers = [(await generate(guessing, [prompt]))[0] for prompt in asked]
    checks = sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    assert sum(len(answer["output_ids"]) for answer in answers) >= MIN_PER_CHECK * checks
    model = load_model(folder, "float32")
    for prompt, answer in zip(asked, answers, strict=True):
        output = answer["output_ids"]
        assert len(output) == TOKENS
        # what our engine thinks of each token, given those before it
        laws = forward(model, prompt + output, 512)[len(prompt) - 1 : -1].log_softmax(-1)
        chosen = laws.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert (laws.amax(-1) - chosen).max() < EPSILON


async def test_its_table_takes_the_head_out_of_use_in_a_crowd(guessing: Client) -> None:
    [prompt, *_] = prompts(guessing.server.folder)
    [alone] = await generate(guessing, [prompt])
    crowd = await generate(guessing, [[*prompt, 5 + number] for number in range(CROWD)])
    assert kept(alone) > 0
    # the first steps have fewer requests, for their prompts are computed one after the other
    assert sum(kept(one) for one in crowd) <= kept(alone) * CROWD / 2
    assert all(len(one["output_ids"]) == TOKENS for one in crowd)


async def test_acceptance_is_told_at_the_end_of_a_stream(guessing: Client) -> None:
    [prompt, *_] = prompts(guessing.server.folder)
    events = await guessing.events(ask(TextPrompt((tuple(prompt),)), max_tokens=TOKENS))
    tracker = UsageTracker(1)
    for event in events[:-1]:
        tracker.chunk(decoded(msgspec.json.encode(event)))
    assert tracker.final
    usage = tracker.total
    assert usage is not None
    assert 0 < usage.accepted_draft_tokens <= usage.draft_tokens
    assert usage.accepted_draft_tokens < usage.completion_tokens


def kept(answer: Any) -> int:
    """Guesses that became its text. How many there were in all is not told: SGLang multiplies its checks by the number
    of guesses that it was started with, whatever its table makes of it."""
    return int(answer["meta_info"]["spec_num_correct_drafts"])


async def generate(client: Client, asked: list[list[int]]) -> list[Any]:
    """By SGLang's own endpoint, which tells token ids and takes several prompts, all of one length of answer."""
    sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    body = msgspec.json.encode({"input_ids": asked, "sampling_params": sampling})
    # the first guess takes half a minute
    status, answer = await client.fetch(EngineRequest("POST", "/generate", body))
    assert status == 200, answer
    return list(msgspec.json.decode(answer))
