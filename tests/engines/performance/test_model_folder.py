"""A model's shape from its folder, against the weights that lie beside it and against the catalog."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from engines.performance.catalog import LLAMA_8B, LLAMA_70B
from engines.performance.model_folder import read_shape
from engines.performance.model_shape import ModelShape
from tests.deployment import ROOT

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128_256,
    "hidden_size": 8_192,
    "intermediate_size": 28_672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
SMALL = {**LLAMA, "hidden_size": 4_096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32}


def folder_of(config: object, folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", ["slipstream-chat", "slipstream-code"])
def test_the_shipped_models_have_as_many_parameters_as_their_files(name: str) -> None:
    folder = ROOT / "models" / name
    weights = (folder / "model.safetensors").read_bytes()
    header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    counted = sum(math.prod(tensor["shape"]) for key, tensor in header.items() if key != "__metadata__")
    assert read_shape(folder).parameters == counted


@pytest.mark.parametrize(("config", "published"), [(LLAMA, LLAMA_70B), (SMALL, LLAMA_8B)])
def test_published_models_come_out_as_the_catalog_has_them(
    config: dict[str, object], published: ModelShape, tmp_path: Path
) -> None:
    shape = read_shape(folder_of(config, tmp_path))
    assert shape.parameters == pytest.approx(published.parameters, rel=0.001)
    assert shape.kv_bytes_per_token == published.kv_bytes_per_token
    assert (shape.hidden, shape.heads) == (published.hidden, published.heads)


def test_fields_that_a_family_leaves_out_are_its_own(tmp_path: Path) -> None:
    """Gemma 3 4B without its image part, as published."""
    text = {"hidden_size": 2_560, "intermediate_size": 10_240, "num_hidden_layers": 34}
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    shape = read_shape(folder_of(config, tmp_path))
    assert shape.parameters == pytest.approx(3.88e9, rel=0.001)
    assert (shape.heads, shape.kv_heads, shape.head_size) == (8, 4, 256)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**LLAMA, "architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM cannot be planned"),
        ({**LLAMA, "hidden_size": 0}, "not the configuration of a decoder"),
        ({"architectures": ["LlamaForCausalLM"]}, "vocab_size"),
    ],
)
def test_what_is_no_dense_decoder_is_refused(config: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        read_shape(folder_of(config, tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_shape(tmp_path / "elsewhere")
