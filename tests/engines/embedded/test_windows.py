"""Layers that attend to a window: the text is that of `transformers`, however a request is served."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engines.embedded.models.registry import load_model
from engines.embedded.quantization.linears import Int8Linears
from engines.layers.attention import AttentionPlan, Chunk
from speculative.config import SpeculationConfig
from tests.engines.embedded.forward import forward
from tests.engines.embedded.test_families import GEMMA
from tests.engines.embedded.test_graphs import with_graphs
from tests.engines.embedded.test_lora import family_model
from tests.engines.embedded.test_native import MAX_APART, RoundedWeights, apart
from tests.engines.embedded.tiny import finish, make_engine, request

NGRAM = SpeculationConfig(method="ngram", governed=False, ngram_least=1, max_drafts=3)
WAYS: dict[str, dict[str, Any]] = {
    "batched": {},
    "chunked and preempted": {"max_batch_tokens": 24, "pages": 60, "output_reserve": 0.0},
    "guessed": {"speculation": NGRAM},
    "by recorded steps": {},
    "guessed, without a mirror": {"speculation": NGRAM},
}
WINDOW = GEMMA["sliding_window"]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return family_model(tmp_path_factory.mktemp("gemma"), "gemma3_text", **GEMMA)


@pytest.mark.parametrize("way", WAYS)
def test_tokens_are_those_of_transformers(gemma: Path, way: str) -> None:
    engine = make_engine(gemma, **WAYS[way])
    if "recorded" in way or "without" in way:
        engine, _ = with_graphs(engine)
    source = random.Random(5)
    stem = [source.randrange(300, 1900) for _ in range(WINDOW + 15)]
    own = [[source.randrange(300, 1900) for _ in range(3)] * source.randrange(1, 20) for _ in range(7)]
    prompts = [[*(stem if at % 2 else ()), *tail] for at, tail in enumerate(own)]
    wanted = [request(f"r{at}", prompt, max_tokens=30, logprobs=0) for at, prompt in enumerate(prompts)]
    for first in (0, 4):  # the second time with the stem in the cache
        found = finish(engine, *wanted[first : first + 4])
        for (rid, _), deltas in found.items():
            prompt = prompts[int(rid[1:])]
            tokens = [entry.id for delta in deltas for entry in delta.logprobs]
            assert len(tokens) == 30
            assert tokens == likeliest(gemma, [*prompt, *tokens])[len(prompt) - 1 : -1], rid
    assert engine.stats.cached_tokens > 0
    assert (engine.scheduler.preemptions > 0) == ("preempted" in way)
    assert (engine.stats.accepted_drafts > 0) == ("guessed" in way)


@torch.inference_mode()
def likeliest(folder: Path, ids: list[int]) -> list[int]:
    """The likeliest token after each of `ids`."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    found: list[int] = model(torch.tensor([ids])).logits[0].argmax(-1).tolist()
    return found


def test_8_bit_weights_are_computed_by_pytorchs_attention(gemma: Path) -> None:
    pytest.importorskip("numba")
    model = load_model(gemma, "bfloat16", lambda _: Int8Linears(native=True))
    exact = load_model(gemma, "float32", lambda _: RoundedWeights())
    exact.embedding = model.embedding.float()
    assert model.native is None
    ids = list(range(300, 400))
    assert apart(forward(model, ids, 64), forward(exact, ids, 64)) < 2 * MAX_APART


def test_a_branch_of_drafts_loses_the_positions_that_a_chain_would_lose() -> None:
    """The last token at 20; two drafts after it, and one after the second: slots 21, 22 and 23 at 21, 21 and 22."""
    hidden = float("-inf")
    bias = torch.full((4, 24), hidden)
    bias[:, :21] = 0
    for row, line in ((1, [21]), (2, [22]), (3, [22, 23])):
        bias[row, line] = 0
    plan = AttentionPlan(torch.arange(4), chunks=(Chunk(0, 4, torch.arange(6), bias),)).within(8)
    near = plan.chunks[0].bias
    assert near is not None
    for row, position in enumerate((20, 21, 21, 22)):
        expected = bias[row].clone()
        expected[: position + 1 - 8] = hidden
        assert torch.equal(near[row], expected)
