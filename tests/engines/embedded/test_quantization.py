"""Rounded weights and activations: what they compute, what they cost in quality, and the report about it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig, Fp8Config, KVConfig
from engines.embedded.engine import Engine
from engines.embedded.models.linears import PlainLinears
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.calibration import calibrate
from engines.embedded.quantization.linears import linears_of
from engines.embedded.quantization.passages import Passage, read_passages
from engines.embedded.quantization.passes import logits_of
from engines.layers.fp8 import Fp8Linear, rounded
from engines.layers.int8 import Int8Linear
from engines.tokenizer.tokenizer import Tokenizer
from slipstream.__main__ import cli
from tests.engines.embedded import naive_llama
from tests.engines.embedded.forward import forward
from tests.engines.embedded.test_batching import greedy, ids
from tests.engines.embedded.tiny import CONFIG, SHIPPED, finish, random_weights, write_model

CHAT = SHIPPED / "slipstream-chat"
PROMPT = [5, 17, 400, 33, 2000, 9, 9, 1, 77, 310, 12]


def matrix(rows: int, columns: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


TURNS = [
    ("What is the capital of France?", "The capital of France is Paris."),
    ("What is the capital of Italy?", "The capital of Italy is Rome."),
    ("What is the capital of Spain?", "The capital of Spain is Madrid."),
    ("What is the capital of Japan?", "The capital of Japan is Tokyo."),
]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations, one per line."""
    path = tmp_path_factory.mktemp("held-out") / "text.jsonl"
    roles = ("user", "assistant")
    lines = [{"messages": [{"role": r, "content": c} for r, c in zip(roles, turn, strict=True)]} for turn in TURNS]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture(scope="module")
def passages(text: Path) -> list[Passage]:
    return read_passages(text, Tokenizer.load(CHAT), 512, 10_000)


@pytest.mark.parametrize(("rows", "columns"), [(96, 32), (64, 704), (2048, 256), (33, 48), (7, 16), (128, 72)])
@pytest.mark.parametrize("native", [True, False])
def test_int8_rows_are_the_same_alone_and_among_others(rows: int, columns: int, native: bool) -> None:
    layer = Int8Linear(matrix(rows, columns), matrix(1, rows, 3)[0], native=native)
    x = matrix(70, columns, 2).bfloat16()
    together = layer(x)
    for size in (1, 3, 8, 32):
        parts = [layer(x[start : start + size]) for start in range(0, 70, size)]
        assert torch.equal(torch.cat(parts), together)


@pytest.mark.parametrize("native", [True, False])
def test_int8_is_as_exact_as_its_steps(native: bool) -> None:
    weight, x = matrix(64, 256), matrix(20, 256, 2).bfloat16()
    exact = x.float() @ weight.T
    error = (Int8Linear(weight, native=native)(x).float() - exact).square().mean().sqrt() / exact.std()
    assert error < 0.012  # a step of amax / 127 makes 0.7 %, bf16 the rest
    zero = Int8Linear(torch.zeros(16, 32), native=native)
    assert not zero(matrix(2, 32).bfloat16()).any()


@pytest.mark.parametrize(("native", "apart"), [(True, 1e-4), (False, 6e-3)])
@pytest.mark.parametrize(("rows", "columns"), [(96, 32), (64, 704), (2048, 256), (80, 100), (5, 7)])
def test_int8_loses_little_beside_the_weights_rounding(rows: int, columns: int, native: bool, apart: float) -> None:
    weight, x = matrix(rows, columns), matrix(9, columns, 2).bfloat16()
    weight[1] = 0
    x[3], x[5], x[7] = 0, x[5] * 1e-20, x[7] * 1e20
    scales = (weight.abs().amax(1) / 127).clamp_min(1e-38).double()
    steps = (weight / scales[:, None]).round()
    exact = x.double() @ (steps * scales[:, None]).T
    found = Int8Linear(weight, native=native)(x.float())
    assert found.dtype is torch.float32
    for row, expected in zip(found.double(), exact, strict=True):
        assert (row - expected).norm() <= apart * expected.norm()


def engine_of(folder: Path, **config: Any) -> Engine:
    kv = KVConfig(budget_bytes=1 << 21, page_tokens=4)
    settings = EngineConfig(model=str(folder), kv=kv, threads=1, **config)
    return build_engine(settings, 512, Tokenizer.load(folder))


def test_int8_batched_text_equals_alone(tiny_model: Path) -> None:
    together = finish(engine_of(tiny_model, quantization="int8"), *greedy(8))
    for one in greedy(8):
        (alone,) = finish(engine_of(tiny_model, quantization="int8"), one).values()
        assert ids(together[one.rid, 0]) == ids(alone)


@pytest.mark.parametrize("weights", ["tensor", "channel"])
def test_simulated_fp8_equals_torchs_own(weights: Any) -> None:
    weight, x = matrix(48, 64), matrix(16, 64, 2)
    by_row = weights == "channel"
    weight_scale = (weight.abs().amax(1) if by_row else weight.abs().max()) / 448
    scale = (x.abs().amax(1, keepdim=True) if by_row else x.abs().max()) / 448
    a = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    b = (weight / (weight_scale[:, None] if by_row else weight_scale)).clamp(-448, 448).to(torch.float8_e4m3fn)
    scales = (scale, weight_scale[None]) if by_row else (scale, weight_scale)
    expected = torch._scaled_mm(a, b.t(), *scales, out_dtype=torch.float32)
    layer = Fp8Linear(weight, None, weights, "token" if by_row else "tensor", float(x.abs().max()))
    torch.testing.assert_close(layer(x), expected, atol=1e-4, rtol=1e-4)


def test_fp8_saturates_and_keeps_small_numbers() -> None:
    x = torch.tensor([0.0, 1.0, 1.06, 500.0, -1e9, 2.0**-9, 2.0**-11])
    expected = torch.tensor([0.0, 1.0, 1.0, 448.0, -448.0, 2.0**-9, 0.0])
    assert torch.equal(rounded(x, torch.tensor(1.0)), expected)


def test_fp8_weights_have_the_noise_of_e4m3_and_channels_help_uneven_rows() -> None:
    weight = matrix(128, 512)
    assert 30 < Fp8Linear(weight, None, "tensor", "none").signal_to_noise_db < 33
    uneven = weight * torch.logspace(-6, 0, 128)[:, None]
    x = matrix(9, 512, 3)

    def worst(weights: Any) -> float:
        error = (Fp8Linear(uneven, None, weights, "none")(x) - x @ uneven.T).square().mean(0).sqrt()
        return float((error / (x @ uneven.T).square().mean(0).sqrt()).max())

    assert worst("channel") < 0.1 < 0.5 < worst("tensor")


@pytest.mark.parametrize("activations", ["none", "token"])
def test_fp8_rows_do_not_depend_on_each_other(activations: Any) -> None:
    layer, x = Fp8Linear(matrix(32, 64), None, "channel", activations), matrix(12, 64, 2)
    x[3] *= 1000
    torch.testing.assert_close(torch.cat([layer(row[None]) for row in x]), layer(x), atol=1e-3, rtol=1e-4)


def test_a_whole_text_at_once_is_the_engines_forward_pass(tiny_model: Path) -> None:
    model = load_model(tiny_model, "float32")
    torch.testing.assert_close(logits_of(model, PROMPT), forward(model, PROMPT, 4), atol=1e-4, rtol=1e-4)


def kl(passages: list[Passage], **fp8: Any) -> float:
    """Of the shipped chat model against itself rounded, per token of its answers."""
    config = EngineConfig(model=str(CHAT), quantization="fp8", fp8=Fp8Config(**fp8))
    plain = load_model(CHAT, "float32")
    changed = load_model(CHAT, "float32", lambda dtype: linears_of(config, dtype))
    total, tokens = 0.0, 0
    for passage in passages:
        before, after = (
            logits_of(model, passage.ids)[passage.start : -1].log_softmax(-1) for model in (plain, changed)
        )
        total += float((before.exp() * (before - after)).sum())
        tokens += len(before)
    return total / tokens


def write_calibration(path: Path, passages: list[Passage], factor: float) -> str:
    found = calibrate(CHAT, passages)
    amax = {name: value * factor for name, value in found.amax.items()}
    path.write_text(json.dumps({"model": "m", "tokens": 1, "amax": amax}))
    return str(path)


def test_sound_settings_are_close_and_a_clipping_one_is_far(tmp_path: Path, passages: list[Passage]) -> None:
    good, bad = (write_calibration(tmp_path / f"{factor}", passages, factor) for factor in (1.0, 1 / 16))
    weights_only = [kl(passages, weights=weights, activations="none") for weights in ("tensor", "channel")]
    by_token = kl(passages)
    static = kl(passages, weights="tensor", activations="tensor", calibration=good)
    assert 0 < max(*weights_only, by_token, static) < 0.05
    assert kl(passages, activations="tensor", calibration=bad) > 1.0


def test_what_is_kept_is_not_rounded(passages: list[Passage]) -> None:
    assert kl(passages, keep=("layers.*",)) == 0.0
    assert 0 < kl(passages, keep=("layers.*.down", "layers.[!0].*")) != kl(passages)


def test_calibration_finds_the_largest_input_of_every_layer(tiny_model: Path) -> None:
    found = calibrate(tiny_model, [Passage(PROMPT), Passage(PROMPT[:3])])
    assert found.tokens == 14
    names = {f"layers.{layer}.{group}" for layer in range(2) for group in ("qkv", "output", "gate_up", "down")}
    assert set(found.amax) == {*names, "head"}
    weights = random_weights(CONFIG)
    x = weights["model.embed_tokens.weight"][torch.tensor(PROMPT)]
    first = naive_llama.norm(x, weights["model.layers.0.input_layernorm.weight"], CONFIG["rms_norm_eps"])
    assert found.amax["layers.0.qkv"] == pytest.approx(float(first.abs().max()), rel=1e-4)


def test_the_commands_write_what_the_settings_read(tmp_path: Path, text: Path) -> None:
    calibration, output = tmp_path / "amax.json", tmp_path / "report.json"
    common = ["--model", str(CHAT), "--text", str(text)]
    done = CliRunner().invoke(cli, ["tools", "quantization", "calibrate", *common, "--output", str(calibration)])
    assert done.exit_code == 0, done.output
    static = ["--activations", "tensor", "--calibration", str(calibration), "--output", str(output)]
    done = CliRunner().invoke(cli, ["tools", "quantization", "sensitivity", *common, *static])
    assert done.exit_code == 0, done.output
    assert "all of the scheme" in done.output
    report = json.loads(output.read_text())
    assert len(report["parts"]) == 22
    assert all(math.isfinite(one["distance"]["kl_per_token"]["upper"]) for one in report["parts"])
    assert report["scheme"]["activations"] == "tensor"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quantization": "int8", "dtype": "float32"}, "int8 computes in bfloat16"),
        ({"quantization": "fp8", "fp8": Fp8Config(activations="tensor")}, r"fp8\.calibration: activations = 'tensor'"),
        (
            {"quantization": "fp8", "fp8": Fp8Config(activations="tensor", calibration="/nowhere")},
            "/nowhere: not a calibration file",
        ),
    ],
)
def test_settings_that_cannot_be_are_named(tiny_model: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        engine_of(tiny_model, **config)


def test_another_models_calibration_is_named(tmp_path: Path) -> None:
    path = write_calibration(tmp_path / "chat", [Passage(PROMPT)], 1.0)
    bigger = {**CONFIG, "num_hidden_layers": 5}
    folder = write_model(tmp_path / "bigger", bigger, random_weights(bigger))
    with pytest.raises(ConfigError, match=r"has no layer layers\.4\.qkv"):
        engine_of(folder, quantization="fp8", fp8=Fp8Config(activations="tensor", calibration=path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", '{"text": "a b c"}\n{"txt": "x"}', "line 2"),
        ("t.jsonl", '{"text": "a", "messages": []}', "line 1: needs either"),
        ("t.jsonl", '{"messages": [{"role": "user", "content": "a"}]}', "line 1: messages must end with"),
        ("t.txt", "", "it holds nothing to measure"),
    ],
)
def test_a_text_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_passages(tmp_path / name, Tokenizer.load(CHAT), 512, 1000)


def test_passages_are_cut_to_windows_and_to_the_whole(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one two three " * 200)
    cut = read_passages(tmp_path / "t.txt", Tokenizer.load(CHAT), 50, 120)
    assert [(len(passage.ids), passage.start) for passage in cut] == [(50, 0)] * 3


def test_every_text_comes_before_the_second_passage_of_one(tmp_path: Path) -> None:
    for name in "ba":
        (tmp_path / f"{name}.py").write_text(f"{name} = 1\n" * 40)
    (tmp_path / "notes.txt").write_text("not read")
    tokenizer = Tokenizer.load(CHAT)
    cut = read_passages(tmp_path, tokenizer, 20, 50)
    assert [passage.text for passage in cut] == [0, 1, 0]
    assert [tokenizer.decode(passage.ids)[:5] for passage in cut[:2]] == ["a = 1", "b = 1"]


def test_of_a_conversation_only_the_answer_counts(passages: list[Passage]) -> None:
    tokenizer = Tokenizer.load(CHAT)
    for passage, (_, answer) in zip(passages, TURNS, strict=True):
        counted = passage.ids[passage.start + 1 :]
        assert tokenizer.decode(counted) == answer
        assert counted[-1] in tokenizer.end_ids


def test_windows_before_the_answer_are_left_out(text: Path) -> None:
    cut = read_passages(text, Tokenizer.load(CHAT), 6, 10_000)
    assert len(cut) < sum(-(-len(p.ids) // 6) for p in read_passages(text, Tokenizer.load(CHAT), 512, 10_000))
    assert all(passage.start < len(passage.ids) - 1 for passage in cut)


def test_plain_is_the_default(tiny_model: Path) -> None:
    assert isinstance(linears_of(EngineConfig(model=str(tiny_model)), torch.float32), PlainLinears)
