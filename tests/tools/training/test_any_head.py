"""Draft heads for folders that were not made here: trained on what the engine computes, and of use to it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open

from contracts.errors import ConfigError
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig
from speculative.eagle import checkpoint
from speculative.eagle.config import HeadConfig, default_layers
from speculative.eagle.head import EagleHead
from speculative.eagle.loss import outputs_by_step
from tests.engines.embedded.test_eagle import ids
from tests.engines.embedded.tiny import CONFIG, make_engine, random_weights, request, write_model
from tests.tools.training import families
from tests.tools.training.families import FAMILIES
from tools.launch.draft_head import HeadOfAnotherModel, require_head_of
from tools.training import export
from tools.training.__main__ import main
from tools.training.served_target import ServedTarget
from tools.training.text_source import TextSource

DEEP = {**CONFIG, "num_hidden_layers": 4}


def model_of(folder: Path, family: str) -> Path:
    return families.model_of(folder, family, DEEP)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    lines = [{"text": f"The number after {n} is {n + 1}, and the one after that is {n + 2}."} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def train(model: Path, text: Path, run: Path, out: Path, steps: int, **more: object) -> str:
    given = {"model": model, "text": text, "run": run, "out": out, "steps": steps, "warmup": 1, "lengths": 24, **more}
    words = ["head", "--batch-tokens", "96", "--draft-vocabulary", "256"]
    words += [str(word) for name, value in given.items() for word in (f"--{name}", value)]
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


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
@pytest.mark.parametrize(("numbers", "given"), [("float16", None), ("bfloat16", None), ("float32", "float16")])
def test_a_head_is_written_in_its_targets_numbers_or_in_those_asked_for(
    numbers: str, given: str | None, text: Path, tmp_path: Path
) -> None:
    config = {**DEEP, "torch_dtype": numbers}
    model, out = write_model(tmp_path / "model", config, random_weights(config)), tmp_path / "head"
    train(model, text, tmp_path / "run", out, 1, **({} if given is None else {"dtype": given}))
    wanted = given or numbers
    assert json.loads((out / "config.json").read_bytes())["torch_dtype"] == wanted
    with safe_open(str(out / "model.safetensors"), "pt") as file:
        assert {str(file.get_tensor(name).dtype) for name in file.keys()} == {  # noqa: SIM118
            f"torch.{wanted}", "torch.int64", "torch.bool",
        }  # fmt: skip
    # what render refuses says that this command makes a head that fits
    if given is None:
        assert require_head_of(model, out, "eagle3", 512, "pools[0]")
    else:
        with pytest.raises(HeadOfAnotherModel, match=r"its numbers are float16, those of .* float32"):
            require_head_of(model, out, "eagle3", 512, "pools[0]")


def test_a_model_whose_numbers_no_head_has_is_refused(text: Path, tmp_path: Path) -> None:
    config = {**DEEP, "torch_dtype": "float8_e4m3fn"}
    model = write_model(tmp_path / "model", config, random_weights(DEEP))
    with pytest.raises(ConfigError, match=r"torch_dtype float8_e4m3fn; .* choose one with --dtype"):
        train(model, text, tmp_path / "run", tmp_path / "head", 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is there")
@pytest.mark.parametrize(
    ("device", "why"), [("cuda", "torch finds 0 CUDA devices; give cpu"), ("gpu", "neither cpu nor cuda")]
)
def test_a_device_that_is_not_there_is_refused_and_not_ignored(
    device: str, why: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=why):
        train(model_of(tmp_path / "llama", "llama"), text, tmp_path / "run", tmp_path / "head", 1, device=device)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_is_trained_on_a_gpu(family: str, text: Path, tmp_path: Path) -> None:
    model, out = model_of(tmp_path / family, family), tmp_path / "head"
    train(model, text, tmp_path / "run", out, 3, device="cuda")
    assert torch.cuda.max_memory_allocated() > 0
    # and goes on without one
    assert "resumed at step 3" in train(model, text, tmp_path / "run", out, 5)
    assert checkpoint.load(out).lm_head.weight.isfinite().all()


def test_nothing_of_a_head_is_computed_on_another_device_than_its_own(tmp_path: Path) -> None:
    """The meta device computes shapes alone, and refuses tensors of another device beside its own."""
    meta, count = torch.device("meta"), 12
    of_a_head = {"draft_vocab_size": 256, "eagle_aux_hidden_state_layer_ids": default_layers(4)}
    head = EagleHead(msgspec.convert({**DEEP, **of_a_head}, HeadConfig)).to(meta)
    head.use_vocabulary(torch.arange(256, device=meta))
    tokens = torch.zeros(count, dtype=torch.int64, device=meta)
    states, table = torch.zeros(count, 96, device=meta), torch.zeros(2048, 32, device=meta)
    found = outputs_by_step(head, tokens, states, table, 3)
    assert [each.device.type for each in found] == ["meta"] * 3
    assert {each.device.type for each in head.state_dict().values()} == {"meta"}


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
