"""A model folder that does not fit stops the start and names what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from contracts.errors import ConfigError
from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig
from engines.embedded.models.registry import load_model
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import CONFIG, SHIPPED, finish, make_engine, random_weights, request, text, write_model


def test_sharded_weights_are_the_same_model(tmp_path: Path, tiny_model: Path) -> None:
    weights = random_weights(CONFIG)
    folder = write_model(tmp_path, CONFIG, {})
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    where = {name: f"model-0000{1 + at % 2}-of-00002.safetensors" for at, name in enumerate(names)}
    for file in set(where.values()):
        save_file({name: weights[name] for name in names if where[name] == file}, str(folder / file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    one = request("r", [5, 6, 7], max_tokens=10)
    assert text(finish(make_engine(folder), one)["r", 0]) == text(finish(make_engine(tiny_model), one)["r", 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, r"GPT2LMHeadModel is not supported; supported: .*LlamaForCausalLM"),
        ({"architectures": None}, "architectures must be"),
        ({"hidden_size": "big"}, "hidden_size must be a positive integer; got 'big'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must be a divisor"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2}}, "rope_scaling: .*short_factor"),
        ({"hidden_act": "gelu"}, "hidden_act must be silu"),
        ({"sliding_window": 64}, "sliding_window must be null"),
        ({"intermediate_size": 64}, r"gate_proj\.weight has shape \(48, 32\); config\.json implies \(64, 32\)"),
        ({"num_hidden_layers": 3}, r"model\.layers\.2\..* is missing"),
        ({"tie_word_embeddings": False}, r"lm_head\.weight is missing"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config must be absent"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = write_model(tmp_path, {**CONFIG, **change}, random_weights(CONFIG))
    with pytest.raises(ConfigError, match=message):
        load_model(folder, "auto")


def test_a_context_beyond_all_memory_is_refused_and_the_model_served_with_a_shorter_one(tmp_path: Path) -> None:
    shape = {**CONFIG, "max_position_embeddings": 9_000_000_000_000}
    folder = write_model(tmp_path, shape, random_weights(CONFIG))
    config, tokenizer = EngineConfig(model=str(folder), context_tokens=8_000_000_000_000), Tokenizer.load(folder)
    with pytest.raises(
        ConfigError, match=r"^engine\.context_tokens: 8,000,000,000,000; .* give 1 to [\d,]+ "
    ) as refused:
        build_engine(config, 8_000_000_000_000, tokenizer)
    assert "\n" not in refused.value.message
    engine = build_engine(config, 512, tokenizer)
    assert engine._runner._model.config.max_position_embeddings == 512


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path, CONFIG, random_weights(CONFIG))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ConfigError, match=r"model\.safetensors: not a whole safetensors file"):
        load_model(folder, "auto")


def test_an_index_that_points_to_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path, CONFIG, {})
    (folder / "model.safetensors").unlink()
    where = dict.fromkeys(random_weights(CONFIG), "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    with pytest.raises(ConfigError, match=r"model-00001-of-00001\.safetensors: file not found"):
        load_model(folder, "auto")


def test_an_index_cannot_point_outside_the_folder(tmp_path: Path) -> None:
    folder = write_model(tmp_path, CONFIG, {})
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "../x.safetensors"}}))
    with pytest.raises(ConfigError, match="points outside"):
        load_model(folder, "auto")


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    weights = random_weights(CONFIG)
    weights["model.norm.weight"] = torch.ones(32, dtype=torch.int32)
    with pytest.raises(ConfigError, match=r"model\.norm\.weight holds torch\.int32"):
        load_model(write_model(tmp_path, CONFIG, weights), "auto")


@pytest.mark.parametrize("name", ["slipstream-chat", "slipstream-code"])
def test_the_shipped_weights_load(name: str) -> None:
    assert load_model(SHIPPED / name, "float32").config.max_position_embeddings >= 2048
