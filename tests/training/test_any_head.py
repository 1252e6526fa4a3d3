"""Draft heads for folders that were not made here: trained on what the engine computes, and of use to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from contracts.errors import ConfigError
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig
from speculative.eagle import checkpoint
from tests.engines.embedded.test_eagle import ids
from tests.engines.embedded.tiny import CONFIG, make_engine, random_weights, request, write_model
from training import export
from training.__main__ import main
from training.served_target import ServedTarget
from training.text_source import TextSource

DEEP = {**CONFIG, "num_hidden_layers": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": False},
}


def model_of(folder: Path, family: str) -> Path:
    config = {**DEEP, **FAMILIES[family]}
    weights = random_weights(config)
    for layer in range(4):
        attention = f"model.layers.{layer}.self_attn"
        if family == "qwen2":
            weights |= {
                f"{attention}.{name}_proj.bias": torch.full((size,), 0.1)
                for name, size in (("q", 32), ("k", 16), ("v", 16))
            }
        if family == "qwen3":
            weights |= {f"{attention}.{name}_norm.weight": torch.full((8,), 1.1) for name in "qk"}
    return write_model(folder, config, weights)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    lines = [{"text": f"The number after {n} is {n + 1}, and the one after that is {n + 2}."} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def train(model: Path, text: Path, run: Path, out: Path, steps: int) -> str:
    given: dict[str, object] = {
        "--model": model,
        "--text": text,
        "--run": run,
        "--out": out,
        "--steps": steps,
        "--warmup": 1,
    }
    given |= {"--lengths": 24, "--batch-tokens": 96, "--draft-vocabulary": 256}
    words = ["head", *(str(word) for pair in given.items() for word in pair)]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_is_trained_for_any_family_and_changes_no_answer(family: str, text: Path, tmp_path: Path) -> None:
    model, out = model_of(tmp_path / family, family), tmp_path / "head"
    train(model, text, tmp_path / "run", out, 3)
    assert "resumed at step 3" in train(model, text, tmp_path / "run", out, 5)
    head = checkpoint.load(out)
    assert (head.config.vocab_size, head.config.draft_vocab_size) == (2048, 256)
    speculation = SpeculationConfig(method="eagle", head=str(out), governed=False)
    prompt = request("a", [5, 17, 400, 33, 9])
    assert ids(make_engine(model, speculation=speculation), prompt) == ids(make_engine(model), prompt)


def test_what_the_engine_computes_is_what_the_trainers_own_model_does(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", DEEP, random_weights(DEEP))
    served, own = ServedTarget(folder), export.load(folder).eval()
    tokens = torch.tensor([[5, 17, 400, 33, 9, 9, 310]])
    with torch.no_grad():
        hidden, outputs = served.hidden_and_outputs(tokens, (0, 1, 2))
        expected, expected_outputs = own.hidden_and_outputs(tokens, (0, 1, 2))
        torch.testing.assert_close(served.scores(hidden), own.scores(expected), rtol=1e-3, atol=1e-3)
    for output, wanted in zip(outputs, expected_outputs, strict=True):
        torch.testing.assert_close(output, wanted, rtol=1e-3, atol=1e-3)
    for name in ("lm_head.weight", "model.norm.weight", "model.layers.3.mlp.up_proj.weight"):
        assert torch.equal(served.weight(name), own.weight(name))


def test_a_model_with_too_few_layers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"num_hidden_layers is 2; .* 4 are needed"):
        ServedTarget(write_model(tmp_path / "flat", CONFIG, random_weights(CONFIG)))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(text: Path, tmp_path: Path) -> None:
    config = {**DEEP, "vocab_size": 1024}
    model = write_model(tmp_path / "narrow", config, random_weights(config))
    words = ["head", "--model", str(model), "--text", str(text), "--run", str(tmp_path / "run")]
    with pytest.raises(ConfigError, match=r"2048 tokens, .* vocab_size 1024; they do not belong together"):
        CliRunner().invoke(main, words, catch_exceptions=False)
    assert not (model / "draft").exists()


def test_texts_come_all_once_a_round_and_only_answers_count(text: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(model_of(tmp_path / "llama", "llama"))
    source = TextSource(text, tokenizer, 1, 100_000)
    first = [tuple(source.window(number, 64).tokens) for number in range(40)]
    second = [tuple(source.window(number, 64).tokens) for number in range(40, 80)]
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 40
    assert first != second
    window = source.window(0, 64)
    assert not window.counted[0]
    assert any(window.counted)
    assert not window.counted[-1]
