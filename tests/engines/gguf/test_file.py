"""A GGUF file that cannot be served is refused with its fault in one line."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from contracts.errors import ConfigError
from engines.embedded.models.config import ModelConfig
from engines.gguf.file import FORMATS, OTHERS, GgufFile, is_gguf
from engines.gguf.model_config import config_of, rounded_to_8_bits
from engines.performance.model_folder import read_shape
from tests.engines.gguf.tiny_gguf import QWEN3, write_gguf


def test_the_formats_are_those_of_the_library() -> None:
    kinds = gguf.GGMLQuantizationType
    for number, made in FORMATS.items():
        assert (made.elements, made.size_bytes) == gguf.GGML_QUANT_SIZES[kinds(number)]
        assert kinds(number).name == made.name
        stored = np.zeros((2, made.size_bytes), np.uint8)
        assert gguf.quants.dequantize(stored, kinds(number)).shape == (2, made.elements)
    assert all(kinds(number).name == name for number, name in OTHERS.items())


def test_the_library_reads_the_same(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", kind="Q4_1")
    ours, theirs = GgufFile.read(path), gguf.GGUFReader(path)
    assert [(name, place.shape, place.start, place.size_bytes) for name, place in ours.tensors.items()] == [
        (one.name, tuple(one.shape.tolist())[::-1], one.data_offset, one.n_bytes) for one in theirs.tensors
    ]
    for name, kind in (("tokens", str), ("merges", str), ("token_type", int)):
        name = f"tokenizer.ggml.{name}"
        assert ours.entries(name, kind) == theirs.fields[name].contents()


def test_a_model_has_the_fields_of_config_json(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", QWEN3, "Q8_0")
    config = ModelConfig.read(path)
    assert (config.qk_norm, config.head_dim, config.rms_norm_eps, config.rope_theta) == (True, 16, 1e-5, 100_000.0)
    assert (config.max_position_embeddings, config.vocab_size, config.dtype) == (512, 2048, "bfloat16")
    assert read_shape(path).name == "model"
    assert read_shape(path).layers == 2


@pytest.mark.parametrize(("kind", "rounded"), [("Q4_0", True), ("Q8_0", True), ("BF16", False)])
def test_it_is_known_whether_its_numbers_are_rounded(tmp_path: Path, kind: str, rounded: bool) -> None:
    assert rounded_to_8_bits(GgufFile.read(write_gguf(tmp_path / "model.gguf", kind=kind))) is rounded


def test_scaled_positions(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 128}
    path = write_gguf(
        tmp_path / "model.gguf", changed={f"llama.rope.scaling.{name}": value for name, value in yarn.items()}
    )
    assert ModelConfig.read(path).rope_scaling is not None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"general.architecture": "a\x1b[31m\n" * 50},
            r"architecture is not a name: a\\x1b\[31m\\na.*… \(350 characters\)",
        ),
        ({"general.architecture": "gemma2"}, "general.architecture is gemma2, .* supported: llama, qwen2, qwen3"),
        ({"llama.expert_count": 8}, "llama.expert_count: mixtures of experts are not supported"),
        ({"llama.rope.scaling.type": "longrope"}, "llama.rope.scaling.type is longrope"),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.attn_factor": 2.0},
            "llama.rope.scaling.attn_factor is not supported",
        ),
        ({"dimension_count": 8}, "llama.rope.dimension_count must be 16"),
        ({"block_count": None}, "llama.block_count is missing"),
        ({"block_count": "two"}, "llama.block_count has an unexpected type"),
        ({"llama.attention.sliding_window": 64}, "sliding_window must be 0 or at least"),
        ({"layer_norm_rms_epsilon": math.nan}, "rms_norm_eps must be a number from .*; got nan"),
        ({"layer_norm_rms_epsilon": math.inf}, "rms_norm_eps must be a number from .*; got inf"),
        ({"freq_base": math.nan}, "rope_theta must be a number from .*; got nan"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", changed=changed)
    with pytest.raises(ConfigError, match=message):
        ModelConfig.read(path)


@pytest.mark.parametrize(("number", "named"), [(10, "Q2_K"), (99, "number 99")])
def test_a_tensor_of_another_type_is_named(tmp_path: Path, number: int, named: str) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    head, name = path.read_bytes(), b"blk.1.ffn_down.weight"
    at = head.index(name) + len(name) + 4 + 2 * 8
    path.write_bytes(head[:at] + struct.pack("<I", number) + head[at + 4 :])
    with pytest.raises(
        ConfigError, match=f"blk.1.ffn_down.weight has the format {named}, .* supported: F32, F16, Q4_0"
    ):
        GgufFile.read(path)


def test_a_number_that_is_no_float32_is_read_as_it_is(tmp_path: Path) -> None:
    name = b"llama.attention.layer_norm_rms_epsilon"
    path = write_gguf(tmp_path / "model.gguf")
    head = path.read_bytes()
    at = head.index(name) + len(name)
    path.write_bytes(head[:at] + struct.pack("<If", 6, 3.4028234e38) + head[at + 8 :])
    with pytest.raises(ConfigError, match=r"rms_norm_eps must be a number from .*; got 3\.40\d+e\+38$"):
        ModelConfig.read(path)


def test_a_scalar_in_blocks_is_named(tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"t" + struct.pack("<IIQ", 0, 8, 0)
    path = tmp_path / "model.gguf"
    path.write_bytes(head + bytes(64))
    with pytest.raises(ConfigError, match="t has rows of 1 in blocks of 32"):
        GgufFile.read(path)
    path.write_bytes(head.replace(struct.pack("<Q", 1) + b"t", struct.pack("<Q", 3) + b"\n\x1bt") + bytes(64))
    with pytest.raises(ConfigError, match=r"broken: no name: \\n\\x1bt;"):
        GgufFile.read(path)


def test_a_file_that_is_cut_anywhere_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    whole = path.read_bytes()
    for length in [0, 3, *range(4, 400, 7), *range(400, len(whole), 9973), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ConfigError, match=r"not a GGUF file|the GGUF file is incomplete or broken"):
            config_of(path)


def test_a_file_with_wrong_bytes_raises_nothing_else(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    whole = path.read_bytes()
    for at in [*range(64), *range(64, 60_000, 601)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            config_of(path)
        except ConfigError as error:
            assert str(path) in error.message


def test_other_files_and_versions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(ConfigError, match="not a GGUF file"):
        GgufFile.read(path)
    path.write_bytes(b"GGUF" + struct.pack(">I", 3) + bytes(16))
    with pytest.raises(ConfigError, match="version 3, or big-endian, is not supported"):
        GgufFile.read(path)
    with pytest.raises(ConfigError, match="No such file"):
        GgufFile.read(tmp_path / "none.gguf")


def test_a_folder_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder.gguf"
    folder.mkdir()
    assert not is_gguf(folder)
    assert is_gguf(tmp_path / "FILE.GGUF")
