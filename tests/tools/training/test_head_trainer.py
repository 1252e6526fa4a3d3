"""A draft head learns its target's distribution, may be interrupted, and is taken by the engine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from engines.tokenizer.tokenizer import Tokenizer
from speculative.eagle import checkpoint
from speculative.eagle.config import default_layers
from tools.training import export
from tools.training.acceptance import measure
from tools.training.code_source import CodeSource
from tools.training.head_trainer import HeadSettings, HeadTrainer, begin
from tools.training.schedule import Schedule

MODEL = Path("models/slipstream-code")
TEXTS = [path.read_text() for path in sorted(Path("contracts").glob("*.py")) if path.stat().st_size > 1000]


def trainer(folder: Path, steps: int) -> HeadTrainer:
    torch.set_num_threads(1)
    torch.manual_seed(3)
    target = export.load(MODEL).eval().requires_grad_(False)
    source = CodeSource(TEXTS, [1.0] * len(TEXTS), MODEL, seed=6)
    head = begin(target, source, 512, 128)
    schedule = Schedule(steps=steps, warmup=2, decay=2, lengths={128: 1.0})
    return HeadTrainer(head, target, source, schedule, HeadSettings(windows=2, report_every=7), folder)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
def test_a_head_learns_resumes_exactly_and_is_taken_by_the_engine(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", 14)
    right = whole.run()
    assert len(right) == 3
    assert right[0] > 0.02  # of 4,096 tokens, after 3,000 tokens of text
    parts = trainer(tmp_path / "parts", 14)
    parts.run(until=5)
    resumed = trainer(tmp_path / "parts", 14)
    assert resumed.step == 5
    resumed.run()
    for (name, one), other in zip(whole.head.state_dict().items(), resumed.head.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    checkpoint.save(whole.head, tmp_path / "draft")
    prompts = [Tokenizer.load(MODEL).encode(text)[:60] for text in TEXTS[:3]]
    rows = {(row.source, row.temperature): row for row in measure(MODEL, prompts, 20, tmp_path / "draft")}
    assert rows["EAGLE", 0.0].checks > 0
    assert 1.0 <= rows["EAGLE", 0.0].tokens_per_check <= 4.0


@pytest.mark.parametrize("name", ["slipstream-code", "slipstream-chat"])
def test_the_shipped_heads_belong_to_the_shipped_models(name: str) -> None:
    target = export.load(MODEL.parent / name)
    head = checkpoint.load(MODEL.parent / name / "draft")
    assert head.config.vocab_size == target.shape.vocab_size
    assert head.config.max_position_embeddings >= target.shape.max_position_embeddings  # SGLang refuses less
    assert head.config.rope_theta == target.shape.rope_theta
    layers = default_layers(target.shape.num_hidden_layers)
    assert head.config.eagle_aux_hidden_state_layer_ids == layers
    told = msgspec.json.decode((MODEL.parent / name / "draft" / "config.json").read_bytes())
    assert told["eagle_aux_hidden_state_layer_ids"] == [layer + 1 for layer in layers]  # vLLM's
    # vLLM refuses a map of the vocabulary where the two are one
    maps = {"d2t", "t2d"} & load_file(MODEL.parent / name / "draft" / "model.safetensors").keys()
    assert len(maps) == (0 if head.config.guesses_all else 2)
    for path in (MODEL.parent / name).rglob("*.safetensors"):
        assert path.stat().st_size < 24_000_000
