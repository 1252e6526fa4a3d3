"""FP8 checkpoints that we write, read by SGLang's own classes. No weights are computed with: that needs a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.embedded.quantization.calibration import calibrate
from engines.embedded.quantization.passages import Passage
from tests.engines.embedded.tiny import CONFIG, random_weights, write_model
from tests.sglang.test_launch import asked_of_its_python, venv
from tests.tools.quantization.test_fp8_checkpoint import PROMPT, keeping
from tools.quantization.fp8_checkpoint import write

__all__ = ["venv"]
pytestmark = [pytest.mark.sglang, pytest.mark.timeout(300)]
MODULES = [
    *(f"model.layers.{n}.{name}" for n in (0, 1) for name in ("self_attn.qkv_proj", "self_attn.o_proj")),
    *(f"model.layers.{n}.{name}" for n in (0, 1) for name in ("mlp.gate_up_proj", "mlp.down_proj")),
    "lm_head",
]
"""As SGLang names a Llama's, fused."""
ATTENTION = "model.layers.1.self_attn"
SCALES = [
    (f"{ATTENTION}.k_proj.k_scale", [f"{ATTENTION}.attn.k_scale"]),
    (f"{ATTENTION}.v_proj.v_scale", [f"{ATTENTION}.attn.v_scale"]),
    (f"{ATTENTION}.k_scale", [f"{ATTENTION}.attn.k_scale"]),
    (f"{ATTENTION}.v_scale", [f"{ATTENTION}.attn.v_scale"]),
]


def test_its_own_classes_understand_both_formats(venv: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "tiny", CONFIG, random_weights(CONFIG))
    calibration = calibrate(model, [Passage(PROMPT)])
    kept = keeping("layers.0.qkv", "layers.1.gate_up")
    write(model, tmp_path / "modelopt", "modelopt", calibration, kept, fp8_kv_cache=True)
    write(model, tmp_path / "tensors", "llm-compressor", calibration, kept)
    folders = [str(tmp_path / name) for name in ("modelopt", "tensors")]
    asked = json.dumps({"folders": folders, "modules": MODULES, "scales": SCALES})
    script = Path(__file__).with_name("read_checkpoint.py")
    lines = asked_of_its_python(venv, script, asked).splitlines()
    modelopt, tensors = (json.loads(line) for line in lines if line.startswith("{"))
    left = ["model.layers.0.self_attn.qkv_proj", "model.layers.1.mlp.gate_up_proj", "lm_head"]
    assert sorted(modelopt["left"]) == sorted(modelopt["old left"]) == sorted(tensors["left"]) == sorted(left)
    assert modelopt["kv"] == modelopt["old kv"] == "FP8"
    assert tensors["kv"] is None
    assert tensors["target"] == ["Linear"]
    assert modelopt["memory"] == {name: to for name, (to,) in SCALES}
