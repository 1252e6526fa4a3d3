"""Heads that were trained for Qwen folders, in the real SGLang: whose classes tell it other layers than Llama's do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch

from engines.drivers.base import EngineRequest
from engines.embedded.models.registry import load_model
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from speculative.eagle import checkpoint
from tests.engines.embedded.forward import forward
from tests.engines.embedded.test_eagle import ids
from tests.engines.embedded.tiny import make_engine, request
from tests.sglang.client import Client
from tests.sglang.server import settings, sglang_server
from tests.tools.training.families import model_of
from tools.training.head_command import numbers_of
from tools.training.head_trainer import HeadSettings, HeadTrainer, begin
from tools.training.schedule import Schedule
from tools.training.served_target import ServedTarget
from tools.training.windows import Window

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.timeout(1_200),
    pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning"),
]
SHAPE: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 320, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 2048, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0, "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
SCALE = 0.3
"""Of its random matrices, which are eight times as wide as those of other tests."""
TOKENS, PROMPT, PROMPTS = 48, 12, 12
GUESSES = 3
PART = 8
"""Tokens asked for at a time, behind a part of what the head learnt: SGLang computes in bfloat16, and where it goes on
in another way the head has learnt nothing."""
MIN_PER_CHECK = 1.5
"""Tokens of an answer by its checks. The first comes without one, so that 8 / 7 is what a head gives that reads other
layers than it was trained with; ours is given 2.1."""
EPSILON = 0.5
"""Of log probabilities: SGLang computes in bfloat16, whose steps are an eighth at logits of 16 to 32, so of two tokens
that are so close either may be the likeliest (0.26 was seen). A guess that nobody checked is whole units off."""


class OwnWords:
    """What a model wrote itself: the only text of which a random one knows how it goes on."""

    def __init__(self, texts: list[list[int]]) -> None:
        self._texts = texts

    def window(self, number: int, length: int) -> Window:
        text = self._texts[number % len(self._texts)][: length + 1]
        return Window(text, [place >= PROMPT for place in range(len(text))])


class Learnt(NamedTuple):
    """A model's folder with its head in `draft/`, and the texts that the head learnt."""

    folder: Path
    texts: list[list[int]]


@pytest.fixture(scope="session", params=["qwen2", "qwen3"])
def learnt(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    return with_head(tmp_path_factory.mktemp("qwen") / str(request.param), request.param)


def with_head(folder: Path, family: str) -> Learnt:
    """A small random model, and a head that learnt how it goes on."""
    torch.manual_seed(1)
    model_of(folder, family, SHAPE, SCALE)
    engine = make_engine(folder, pages=512)
    asked = [request(str(number), prompt(number), max_tokens=TOKENS, min_tokens=TOKENS, logprobs=0)
             for number in range(PROMPTS)]  # fmt: skip
    written = ids(engine, *asked)
    texts = [[*prompt(number), *written[str(number), 0]] for number in range(PROMPTS)]
    target, source = ServedTarget(folder), OwnWords(texts)
    head = begin(target, source, 1024, TOKENS + PROMPT - 1)
    schedule = Schedule(steps=24, warmup=2, decay=12, lengths={TOKENS + PROMPT - 1: 1.0})
    HeadTrainer(head, target, source, schedule, HeadSettings(windows=4), folder / "run").run()
    checkpoint.save(head, folder / "draft", numbers_of(folder))
    return Learnt(folder, texts)


def prompt(number: int) -> list[int]:
    """Tokens that are neither text nor the end of one."""
    return [16 + (number * 131 + place * 17) % 2_000 for place in range(PROMPT)]


@pytest.fixture(scope="module")
async def guessing(learnt: Learnt) -> AsyncIterator[Client]:
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    model = learnt.folder
    flags = (
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(model / "draft"),
        "--speculative-num-steps", str(GUESSES), "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", str(GUESSES + 1), "--disable-cuda-graph",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEC", "1")  # the script's: attention that can check guesses
        async with sglang_server(model, model.name, "engine-token", *flags) as server:
            connections = EngineConnections(OneKey(server.token))
            yield Client(server, connections)
            await connections.close()


async def test_sglang_guesses_with_a_head_of_a_qwen(guessing: Client, learnt: Learnt) -> None:
    asked = [text[:end] for text in learnt.texts for end in range(PROMPT, PROMPT + TOKENS - PART, PART)]
    sampling = {"temperature": 0, "max_new_tokens": PART, "ignore_eos": True}
    body = msgspec.json.encode({"input_ids": asked, "sampling_params": sampling})
    status, said = await guessing.fetch(EngineRequest("POST", "/generate", body))
    assert status == 200, said
    answers = msgspec.json.decode(said)
    checks = sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    assert sum(len(answer["output_ids"]) for answer in answers) >= MIN_PER_CHECK * checks
    served = load_model(guessing.server.folder, "float32")
    for each, answer in zip(asked, answers, strict=True):
        output = answer["output_ids"]
        assert len(output) == PART
        # what our engine thinks of each token, given those before it
        laws = forward(served, each + output, 512)[len(each) - 1 : -1].log_softmax(-1)
        chosen = laws.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert (laws.amax(-1) - chosen).max() < EPSILON
