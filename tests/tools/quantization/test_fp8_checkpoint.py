"""FP8 checkpoints for other engines: their numbers are the ones that were judged, their names what engines look for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.calibration import Calibration, calibrate
from engines.embedded.quantization.passages import Passage
from engines.embedded.quantization.passes import logits_of
from engines.layers.fp8 import MAX, Fp8Linear
from engines.performance.precision import Precision
from slipstream.__main__ import cli
from tests.engines.embedded.tiny import CONFIG, random_weights, write_model
from tools.launch.checkpoint import Checkpoint as LaunchedCheckpoint
from tools.launch.checkpoint import read_checkpoint
from tools.quantization.distance import Estimate
from tools.quantization.fp8_checkpoint import write
from tools.quantization.keep_list import FORMAT, KeepList, modules_of
from tools.quantization.scheme import Scheme

PROMPT = [5, 17, 400, 33, 2000, 9, 9, 1, 77, 310, 12]
STATIC = Scheme("fp8", "tensor", "tensor")
FUSED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny", CONFIG, random_weights(CONFIG))


@pytest.fixture(scope="module")
def calibration(model: Path) -> Calibration:
    return calibrate(model, [Passage(PROMPT)])


def keeping(*parts: str, scheme: Scheme = STATIC, memory: tuple[int, ...] = ()) -> KeepList:
    modules = tuple(module for part in parts for module in modules_of(part))
    return KeepList(FORMAT, "tiny", scheme, parts, modules, memory, 0.02, Estimate(0, 0, 0), 0)


def group_of(tensors: dict[str, Tensor], layer: int, group: str, suffix: str) -> list[Tensor]:
    return [tensors[f"model.layers.{layer}.{name}.{suffix}"] for name in FUSED[group]]


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())["quantization_config"]
    return found


def test_fixed_scales_give_the_numbers_that_were_judged(model: Path, calibration: Calibration, tmp_path: Path) -> None:
    write(model, tmp_path / "fp8", "modelopt", calibration, None)
    plain, written = random_weights(CONFIG), load_file(tmp_path / "fp8" / "model.safetensors")
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(3))
    for layer in range(2):
        for group in FUSED:
            amax = calibration.amax[f"layers.{layer}.{group}"]
            whole = torch.cat(group_of(plain, layer, group, "weight"))
            judged = Fp8Linear(whole, None, "tensor", "tensor", amax)
            parts = group_of(written, layer, group, "weight")
            (weight_scale,) = {float(scale) for scale in group_of(written, layer, group, "weight_scale")}
            (input_scale,) = {float(scale) for scale in group_of(written, layer, group, "input_scale")}
            assert {part.dtype for part in parts} == {torch.float8_e4m3fn}
            assert input_scale == float(torch.tensor(amax) / MAX)
            # what an engine computes of the file, by the format's definition
            inputs = x.repeat(1, 2)[:, : whole.shape[1]]
            given = (inputs / input_scale).clamp(-MAX, MAX).to(torch.float8_e4m3fn).float()
            computed = given @ torch.cat(parts).float().T * (torch.tensor(input_scale) * torch.tensor(weight_scale))
            assert torch.equal(computed, judged(inputs))


def test_scales_by_channel_give_the_numbers_that_were_judged(model: Path, tmp_path: Path) -> None:
    write(model, tmp_path / "fp8", "llm-compressor", None, None)
    plain, written = random_weights(CONFIG), load_file(tmp_path / "fp8" / "model.safetensors")
    assert not any(name.endswith("input_scale") for name in written)
    for layer in range(2):
        for group in FUSED:
            whole = torch.cat(group_of(plain, layer, group, "weight"))
            scale = torch.cat(group_of(written, layer, group, "weight_scale"))
            assert tuple(scale.shape) == (whole.shape[0], 1)
            restored = torch.cat(group_of(written, layer, group, "weight")).float() * scale
            # an identity shows the weights that the simulation multiplies by
            judged = Fp8Linear(whole, None, "channel", "none")(torch.eye(whole.shape[1])).T
            assert torch.equal(restored, judged)


@pytest.mark.parametrize(("toolchain", "name"), [("modelopt", "modelopt"), ("llm-compressor", "compressed-tensors")])
@pytest.mark.parametrize("fp8_kv", [True, False])
def test_what_renders_launch_commands_knows_the_checkpoint(
    toolchain: Any, name: str, fp8_kv: bool, model: Path, calibration: Calibration, tmp_path: Path
) -> None:
    write(model, tmp_path / "fp8", toolchain, calibration, None, fp8_kv_cache=fp8_kv)
    assert read_checkpoint(tmp_path / "fp8") == LaunchedCheckpoint(Precision.FP8, name, fp8_kv)


@pytest.mark.parametrize("toolchain", ["modelopt", "llm-compressor"])
def test_what_is_kept_is_as_it_was_and_named(
    toolchain: Any, model: Path, calibration: Calibration, tmp_path: Path
) -> None:
    kept = modules_of("layers.0.qkv")
    write(model, tmp_path / "fp8", toolchain, calibration, keeping("layers.0.qkv"))
    plain, written = random_weights(CONFIG), load_file(tmp_path / "fp8" / "model.safetensors")
    for name in ("model.embed_tokens", "model.norm", "model.layers.1.input_layernorm", *kept):
        assert torch.equal(written[f"{name}.weight"], plain[f"{name}.weight"])
        assert f"{name}.weight_scale" not in written
    assert config_of(tmp_path / "fp8")["ignore"] == ["lm_head", *kept]
    separate = tmp_path / "fp8" / "hf_quant_config.json"
    assert separate.exists() == (toolchain == "modelopt")
    if separate.exists():
        assert json.loads(separate.read_text())["quantization"] == {
            "quant_algo": "FP8",
            "kv_cache_quant_algo": None,
            "exclude_modules": ["lm_head", *kept],
        }
    assert (tmp_path / "fp8" / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("toolchain", "name", "shape"),
    [("modelopt", "self_attn.v_proj.v_scale", ()), ("llm-compressor", "self_attn.v_scale", (1,))],
)
def test_keys_and_values_have_scales_that_hold_them(
    toolchain: Any, name: str, shape: tuple[int, ...], model: Path, calibration: Calibration, tmp_path: Path
) -> None:
    seen: list[Tensor] = []

    def heard(heads: Tensor) -> Tensor:
        seen.append(heads.clone())
        return heads

    loaded = load_model(model, "float32")
    loaded.keep_rounded(heard, 1)
    logits_of(loaded, PROMPT)
    write(model, tmp_path / "fp8", toolchain, calibration, None, fp8_kv_cache=True)
    scale = load_file(tmp_path / "fp8" / "model.safetensors")[f"model.layers.1.{name}"]
    assert tuple(scale.shape) == shape
    assert float(scale) * MAX == pytest.approx(float(seen[0][:, 1].abs().max()))
    assert config_of(tmp_path / "fp8")["kv_cache_scheme"]["num_bits"] == 8


def test_several_files_become_as_many(model: Path, calibration: Calibration, tmp_path: Path) -> None:
    """Parts of one fused matrix lie in different files here, and still share a scale."""
    weights = random_weights(CONFIG)
    folder = write_model(tmp_path / "sharded", CONFIG, weights)
    (folder / "model.safetensors").unlink()
    files = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    names = sorted(weights)
    where = {name: files[place % 2] for place, name in enumerate(names)}
    for file in files:
        save_file({name: weights[name] for name in names if where[name] == file}, str(folder / file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    write(model, tmp_path / "whole", "modelopt", calibration, None, fp8_kv_cache=True)
    write(folder, tmp_path / "parts", "modelopt", calibration, None, fp8_kv_cache=True)
    index = json.loads((tmp_path / "parts" / "model.safetensors.index.json").read_text())["weight_map"]
    parts = {name: load_file(tmp_path / "parts" / file)[name] for name, file in index.items()}
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    assert parts.keys() == whole.keys()
    assert all(torch.equal(parts[name].float(), whole[name].float()) for name in whole)


@pytest.mark.parametrize(
    ("toolchain", "calibrated", "keep", "fp8_kv", "said"),
    [
        ("modelopt", False, None, False, "--calibration: modelopt's scales"),
        ("llm-compressor", False, None, True, "--calibration: scales of keys and values"),
        ("modelopt", True, keeping("layers.0.qkv", scheme=Scheme("fp8")), False, "measure with --weights tensor"),
        ("llm-compressor", False, keeping("layers.0.qkv"), False, "measure with --weights channel"),
        ("modelopt", True, keeping("layers.1.kv", memory=(1,)), True, "keys and values of layers 1"),
        ("modelopt", True, keeping(*(f"layers.{n}.{g}" for n in (0, 1) for g in FUSED)), False, "nothing to write"),
    ],
)
def test_what_cannot_be_said_in_a_format_is_refused(
    toolchain: Any,
    calibrated: bool,
    keep: KeepList | None,
    fp8_kv: bool,
    said: str,
    model: Path,
    calibration: Calibration,
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=said):
        write(model, tmp_path / "fp8", toolchain, calibration if calibrated else None, keep, fp8_kv_cache=fp8_kv)
    assert not (tmp_path / "fp8").exists()


def test_a_side_that_kernels_cannot_take_is_refused(tmp_path: Path) -> None:
    config = {**CONFIG, "intermediate_size": 40}
    model = write_model(tmp_path / "odd", config, random_weights(config))
    with pytest.raises(ConfigError, match=r"mlp\.gate_proj has a side of 40"):
        write(model, tmp_path / "fp8", "llm-compressor", None, None)
    assert not (tmp_path / "fp8").exists()


def test_another_models_calibration_is_refused(model: Path, calibration: Calibration, tmp_path: Path) -> None:
    amax = {name: value for name, value in calibration.amax.items() if not name.startswith("layers.1")}
    with pytest.raises(ConfigError, match="whose layers are others"):
        write(model, tmp_path / "fp8", "modelopt", msgspec.structs.replace(calibration, amax=amax), None)
    before = msgspec.structs.replace(calibration, keys=(), values=())
    with pytest.raises(ConfigError, match="calibrate again"):
        write(model, tmp_path / "fp8", "modelopt", before, None, fp8_kv_cache=True)


def test_the_guides_way_from_a_folder_to_a_checkpoint(model: Path, tmp_path: Path) -> None:
    """docs/guides/fp8.md, command by command: the checkpoint keeps what sensitivity named."""
    text = tmp_path / "texts.jsonl"
    text.write_text("\n".join(json.dumps({"text": f"How many apples are {n} and {n + 2}?"}) for n in range(6)))
    common = ["--model", str(model), "--text", str(text)]
    scales, keep, output = (str(tmp_path / name) for name in ("scales.json", "keep.json", "fp8"))
    for words in (
        ["calibrate", *common, "--output", scales],
        ["sensitivity", *common, "--weights", "tensor", "--activations", "tensor", "--calibration", scales,
         "--kl-budget", "0.005", "--export", keep],
        ["export", "--model", str(model), "--for", "modelopt", "--calibration", scales, "--keep-list", keep,
         "--kv-cache", "fp8", "--output", output],
    ):  # fmt: skip
        result = CliRunner().invoke(cli, ["tools", "quantization", *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    named = json.loads(Path(keep).read_text())["modules"]
    assert named
    assert sorted(config_of(Path(output))["ignore"]) == sorted(["lm_head", *named])
    again = CliRunner().invoke(cli, ["tools", "quantization", *words])
    assert again.exit_code != 0
    assert "must be a new or empty folder" in str(again.exception)
