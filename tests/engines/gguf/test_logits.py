"""Logits of GGUF files equal llama.cpp's for the same files (`llama_cpp.json`, by `expect.py`)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from contracts.errors import ConfigError
from engines.embedded.models import gguf_checkpoint
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.linears import Int8Linears
from engines.gguf.file import GgufFile
from tests.engines.embedded.forward import forward
from tests.engines.embedded.tiny import write_model
from tests.engines.gguf import expect
from tests.engines.gguf.expect import FILE, PROMPT, cases
from tests.engines.gguf.tiny_gguf import LLAMA, QWEN2, weights_of, write_gguf

CASES = {name: (config, kind) for name, config, kind in cases()}
CLOSE = {"F32": 5e-5, "F16": 0.005, "BF16": 0.05}
"""Tolerance of log probabilities: llama.cpp rounds activations to the format of the matrix."""
ROUNDED = 0.25
"""The same for matrices in 8 bits."""


def difference(path: Path, name: str, linears: Int8Linears | None = None) -> float:
    """Of log probabilities, at the most."""
    model = load_model(path, "float32") if linears is None else load_model(path, "bfloat16", lambda dtype: linears)
    found = torch.log_softmax(forward(model, PROMPT, 64)[-1], -1)
    expected: list[tuple[int, float]] = json.loads(FILE.read_text())[name]
    return max(abs(float(found[id_]) - logprob) for id_, logprob in expected)


@pytest.mark.parametrize("name", CASES)
def test_they_are_llama_cpps_of_the_same_file(tmp_path: Path, name: str) -> None:
    config, kind = CASES[name]
    assert difference(write_gguf(tmp_path / "model.gguf", config, kind), name) < CLOSE.get(kind, ROUNDED)


def test_8_bits_are_hardly_further_off(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", kind="Q8_0")
    assert difference(path, "llama Q8_0", Int8Linears()) < 2 * ROUNDED


def test_rows_left_as_they_are_stored_are_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tolerance finds a wrong order of rows."""
    monkeypatch.setattr(gguf_checkpoint, "INTERLEAVED", "none")
    assert difference(write_gguf(tmp_path / "model.gguf", kind="Q8_0"), "llama Q8_0") > 4 * ROUNDED


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    with path.open("r+b") as file:
        file.seek(GgufFile.read(path).tensors["blk.0.attn_q.weight"].start)
        file.write(np.float32(np.nan).tobytes())
    with pytest.raises(ConfigError, match=r"model\.gguf: a tensor holds numbers that are not finite"):
        load_model(path, "float32")


def test_it_is_the_model_of_the_folder_with_the_same_weights(tmp_path: Path) -> None:
    folder = load_model(write_model(tmp_path / "folder", LLAMA, weights_of(LLAMA)), "float32")
    file = load_model(write_gguf(tmp_path / "model.gguf"), "float32")
    assert file.config == folder.config
    torch.testing.assert_close(forward(file, PROMPT, 64), forward(folder, PROMPT, 64), rtol=0, atol=0)


@pytest.mark.parametrize(("kind", "dtype"), [("F32", torch.float32), ("F16", torch.bfloat16), ("Q4_1", torch.bfloat16)])
def test_what_bfloat16_hardly_rounds_is_held_in_it(
    tmp_path: Path, kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert load_model(write_gguf(tmp_path / "model.gguf", kind=kind), "auto").dtype is dtype


def test_a_tensor_too_many_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", {**QWEN2, "architectures": ["Qwen2ForCausalLM"]})
    path.write_bytes(path.read_bytes().replace(b"qwen2", b"llama"))
    with pytest.raises(
        ConfigError, match=r"blk\.0\.attn_k\.bias \(6 such\) is not part of a supported model of this architecture"
    ):
        load_model(path, "float32")


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the wheel xllamacpp")
def test_llama_cpp_still_says_so(tmp_path: Path) -> None:
    for name, (config, kind) in CASES.items():
        found = dict(expect.logprobs(write_gguf(tmp_path / f"{name}.gguf", config, kind), PROMPT, expect.SHOWN))
        kept = json.loads(FILE.read_text())[name]
        assert all(abs(found.get(id_, logprob) - logprob) < ROUNDED for id_, logprob in kept)
