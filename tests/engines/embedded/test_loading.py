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
from engines.embedded.cores import memory_bytes
from engines.embedded.models.config import ModelConfig
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
        ({"hidden_size": "big"}, "hidden_size must be an integer from 1 to .*; got 'big'"),
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


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 64,
}
GEMMA = {"architectures": ["Gemma3ForCausalLM"], "hidden_act": None, "sliding_window": 40}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": [[], []]}, r"layer_types must be .*; got \[\[\], \[\]\]"),
        ({"layer_types": ["x" * 50] * 10_000}, r"layer_types must be .*; got \['xxx"),
        ({**GEMMA, "num_hidden_layers": 10**12}, "num_hidden_layers must be an integer from 1 to 1,024; got 1000"),
        ({"hidden_size": 10**400}, "hidden_size must be an integer from 1 to 1,000,000,000,000,000; got 1000"),
        ({"max_position_embeddings": 10**400, "rope_scaling": LONG}, "max_position_embeddings must be an integer from"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps must be a number from 1e-20 to 1; got 1000"),
        ({**GEMMA, "query_pre_attn_scalar": 10**400}, "query_pre_attn_scalar must be a number from 1 to .*; got 1000"),
        ({**GEMMA, "query_pre_attn_scalar": 1e-320}, "query_pre_attn_scalar must be a number from 1 to .*; got 1e-320"),
        ({"rope_parameters": {"rope_theta": 10**400}}, "rope_theta must be a number from 2 to .*; got 1000"),
        ({"rope_parameters": {"rope_theta": 0}}, "rope_theta must be a number from 2 to .*; got 0"),
        ({"rope_parameters": {**YARN, "rope_theta": 1}}, "rope_theta must be a number from 2 to .*; got 1"),
        (
            {**GEMMA, "rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_theta": -1}}},
            "rope_theta must be a number from 2 to .*; got -1",
        ),
        ({"partial_rotary_factor": 0.66}, "partial_rotary_factor must be a share .* even .* 8 numbers.*; got 0.66"),
        ({"partial_rotary_factor": 0.01}, "partial_rotary_factor must be a share .* even .* 8 numbers.*; got 0.01"),
        ({"rope_scaling": {**YARN, "factor": 1e308}}, r"<= 10000\.0 - at `\$\.factor`; got 1e\+308"),
        ({"rope_scaling": {**YARN, "beta_fast": 1e-320}}, r">= 0\.001 - at `\$\.beta_fast`; got 1e-320"),
        ({"rope_scaling": {**YARN, "attention_factor": 1e30}}, r"<= 100\.0 - at `\$\.attention_factor`; got 1e\+30"),
        ({"rope_scaling": LONG, "original_max_position_embeddings": 1}, r">= 2 - at `\$\.original_max.*`; got 1"),
        ({"rope_scaling": ["x" * 50] * 10_000}, r"rope_scaling must be .*; got \['xxx"),
        ({"rope_scaling": {**LONG, "long_factor": ["x"] * 9}}, r"got `str` - at `\$\.long_factor\[0\]`; got \['x', "),
    ],
)  # fmt: skip
def test_a_hostile_number_or_list_is_named_in_one_short_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **change}))
    with pytest.raises(ConfigError, match=message) as refused:
        ModelConfig.read(tmp_path)
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 600


def test_lists_in_too_many_lists_are_no_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"not valid JSON: .*recursion"):
        ModelConfig.read(tmp_path)


def test_a_context_beyond_all_memory_is_refused_and_the_model_served_with_a_shorter_one(tmp_path: Path) -> None:
    shape = {**CONFIG, "max_position_embeddings": 9_000_000_000_000}
    folder = write_model(tmp_path, shape, random_weights(CONFIG))
    config = EngineConfig(model=str(folder), context_tokens=8_000_000_000_000, device="cpu", threads=1)
    tokenizer = Tokenizer.load(folder)
    most = memory_bytes() // (64 * 2 + 8 * 4 * 2)  # keys and values, and a rotary table while it is made
    with pytest.raises(
        ConfigError, match=rf"^engine\.context_tokens: 8,000,000,000,000; .* give 1 to {most:,} "
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


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("model-00001-of-00001.safetensors", r"model-00001-of-00001\.safetensors: file not found"),
        ("../x.safetensors", "points outside"),
    ],
)
def test_an_index_that_points_nowhere_or_outside_the_folder_is_named(tmp_path: Path, file: str, message: str) -> None:
    folder = write_model(tmp_path, CONFIG, {})
    (folder / "model.safetensors").unlink()
    where = dict.fromkeys(random_weights(CONFIG), file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    with pytest.raises(ConfigError, match=message):
        load_model(folder, "auto")


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    weights = random_weights(CONFIG)
    weights["model.norm.weight"] = torch.ones(32, dtype=torch.int32)
    with pytest.raises(ConfigError, match=r"model\.norm\.weight holds torch\.int32"):
        load_model(write_model(tmp_path, CONFIG, weights), "auto")


@pytest.mark.parametrize("name", ["slipstream-chat", "slipstream-code"])
def test_the_shipped_weights_load(name: str) -> None:
    assert load_model(SHIPPED / name, "float32").config.max_position_embeddings >= 2048
