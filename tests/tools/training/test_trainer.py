"""A small training: the loss falls, a run that was interrupted ends where another does, an export loads everywhere."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from contracts.errors import ConfigError
from engines.embedded.models.registry import load_model
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.forward import forward
from tools.training import export
from tools.training.attention import blockwise
from tools.training.code_source import CodeSource
from tools.training.model import LONG, Llama, Shape
from tools.training.schedule import Schedule
from tools.training.trainer import Settings, Trainer
from tools.training.windows import Window, batch, fitted

TOKENIZER = Path("models/slipstream-code")
TEXTS = [path.read_text() for path in sorted(Path("contracts").glob("*.py")) if path.stat().st_size > 1000]
SHAPE = Shape(
    vocab_size=4096,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
)
SETTINGS = Settings(batch_tokens=1024, micro_tokens=512, report_every=5)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def model(shape: Shape = SHAPE) -> Llama:
    made = Llama(shape)
    made.initialise(torch.Generator().manual_seed(5))
    return made


def source() -> CodeSource:
    return CodeSource(TEXTS, [1.0] * len(TEXTS), TOKENIZER, seed=2)


def trainer(folder: Path, steps: int = 12, **options: Any) -> Trainer:
    schedule = Schedule(steps=steps, warmup=3, decay=4, lengths={128: 0.7, 256: 0.3}, seed=2)
    return Trainer(model(), source(), schedule, SETTINGS, folder, **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A run of 40 steps and the losses that it reported."""
    folder = tmp_path_factory.mktemp("run")
    torch.set_num_threads(1)
    trainer(folder, 40).run()
    losses = [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]
    return folder, losses


def test_the_loss_falls(trained: tuple[Path, list[float]]) -> None:
    _, losses = trained
    assert len(losses) == 8
    assert losses[0] > 7  # ln 4096 is 8.3
    assert losses[-1] < 0.8 * losses[0]
    assert losses[-1] == min(losses)


@pytest.fixture(scope="module")
def exported(trained: tuple[Path, list[float]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "model"
    weights, tokens = export.from_checkpoint(trained[0] / "checkpoint.pt")
    assert tokens == 40 * 1024
    export.save(weights, folder, TOKENIZER, [0])
    return folder


def own_scores(folder: Path, ids: list[int]) -> Tensor:
    ours = export.load(folder)
    with torch.no_grad():
        return ours.scores(ours(torch.tensor([ids]))[0])


def test_an_export_gives_the_same_scores_in_our_engine_and_in_transformers(exported: Path) -> None:
    ids = Tokenizer.load(exported).encode(TEXTS[0])[:300]
    ours = own_scores(exported, ids)
    theirs: Any = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(forward(load_model(exported, "float32"), ids, 64), expected, atol=1e-4, rtol=1e-4)
    # and the comparison can fail: a trained model is not an untrained one
    with torch.no_grad():
        untrained = model().scores(model()(torch.tensor([ids]))[0])
    assert float((untrained - expected).abs().max()) > 1


def test_an_export_carries_its_tokenizer_context_and_end(exported: Path) -> None:
    theirs: Any = AutoTokenizer.from_pretrained(exported)
    text = TEXTS[1][:500]
    assert theirs(text)["input_ids"] == Tokenizer.load(exported).encode(text)
    assert theirs.model_max_length == 512
    assert Tokenizer.load(exported).end_ids == {0}
    assert Tokenizer.load(exported).fill is not None
    assert json.loads((exported / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_training_goes_on_from_an_export(exported: Path, tmp_path: Path) -> None:
    schedule = Schedule(steps=6, warmup=0, lengths={128: 1.0})
    settings = Settings(batch_tokens=1024, report_every=1, muon_rate=0.0, adam_rate=0.0)
    longer = export.load(exported, max_position_embeddings=1024)
    assert longer.shape.max_position_embeddings == 1024
    Trainer(longer, source(), schedule, settings, tmp_path).run()
    losses = [json.loads(line)["loss"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert max(losses) < 6.5
    with pytest.raises(ConfigError, match=r"config\.json"):
        export.load(tmp_path)


def weights(one: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in one.model.state_dict().items()}


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole")
    whole.run()
    first = trainer(tmp_path / "parts")
    first.run(until=5)
    second = trainer(tmp_path / "parts")
    assert second.step == 5
    second.run()
    wanted, found = weights(whole), weights(second)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    # and steps matter: the weights after five are others
    assert not torch.equal(weights(first)["model.norm.weight"], wanted["model.norm.weight"])


def test_a_stop_signal_ends_the_run_after_a_step_with_a_checkpoint(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    class Stopping(CodeSource):
        def window(self, number: int, length: int) -> Window:
            if number > 20:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().window(number, length)

    schedule = Schedule(steps=1000, lengths={128: 1.0})
    stopping = Stopping(TEXTS, [1.0] * len(TEXTS), TOKENIZER, seed=2)
    stopped = Trainer(model(), stopping, schedule, SETTINGS, tmp_path)
    stopped.run()
    assert stopped.step == 3
    assert signal.getsignal(signal.SIGTERM) is before
    assert Trainer(model(), stopping, schedule, SETTINGS, tmp_path).step == 3


def test_only_counted_tokens_are_learnt(tmp_path: Path) -> None:
    class Ends:
        """The second half is another token over and over, which may not count."""

        def __init__(self, token: int, counts: bool) -> None:
            self._token, self._counts = token, counts

        def window(self, number: int, length: int) -> Window:
            half = length // 2
            rest = length + 1 - half
            return Window([7] * half + [self._token] * rest, [True] * half + [self._counts] * rest)

    def after(token: int, counts: bool) -> Tensor:
        folder = tmp_path / f"{token}-{counts}"
        run = Trainer(model(), Ends(token, counts), Schedule(steps=3, lengths={64: 1.0}), SETTINGS, folder)
        run.run()
        return weights(run)["model.layers.0.mlp.up_proj.weight"]

    assert torch.equal(after(9, False), after(11, False))
    assert not torch.equal(after(9, True), after(11, True))


def test_windows_must_have_the_length_that_was_asked_for() -> None:
    class Short:
        def window(self, number: int, length: int) -> Window:
            return Window([1] * length, [True] * length)

    with pytest.raises(ValueError, match="a window of 64 tokens where 65 are wanted"):
        batch(Short(), 0, 1, 64)
    assert fitted([1, 2], [True, True], 3, 0) == Window([1, 2, 0, 0], [True, True, False, False])


def test_the_rate_rises_stays_and_falls_and_a_longer_run_agrees_until_the_fall() -> None:
    short = Schedule(steps=100, warmup=10, decay=40)
    assert [short.rate(step) for step in (0, 4, 9, 59)] == [0.1, 0.5, 1.0, 1.0]
    assert short.rate(60) == 1.0
    assert short.rate(80) == 0.5
    assert 0 < short.rate(99) < 0.03
    longer = Schedule(steps=300, warmup=10, decay=40)
    assert [longer.rate(step) for step in range(61)] == [short.rate(step) for step in range(61)]
    assert [longer.length(step) for step in range(50)] == [short.length(step) for step in range(50)]


@pytest.mark.parametrize(("tokens", "block"), [(7, 4), (64, 16), (100, 128), (129, 64)])
def test_attention_in_blocks_is_attention(tokens: int, block: int) -> None:
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, heads, tokens, 8, generator=generator).requires_grad_() for heads in (4, 2, 2))
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    found = blockwise(q, k, v, block)
    torch.testing.assert_close(found, expected)
    wanted = torch.autograd.grad(expected.square().sum(), (q, k, v))
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), (q, k, v)), wanted)


def test_long_windows_are_recomputed_and_give_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.randint(0, 4096, (1, 64), generator=torch.Generator().manual_seed(1))

    def gradient() -> Tensor:
        one = model()
        torch.autograd.backward(one.scores(one(ids)).square().mean())
        found = one.embedding.grad
        assert found is not None
        return found

    plain = gradient()
    assert LONG >= 512
    monkeypatch.setattr("tools.training.model.LONG", 16)
    torch.testing.assert_close(gradient(), plain)
