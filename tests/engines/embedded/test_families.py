"""Each model family against `transformers` on small random checkpoints that it wrote itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from contracts.errors import ConfigError
from engines.embedded.models.registry import load_model
from slipstream import model_folder
from tests.engines.embedded.forward import forward

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.05 * pair for pair in range(24)],
    "long_factor": [1.0 + 2.0 * pair for pair in range(24)],
    "partial_rotary_factor": 0.75,
}
PHI4 = {
    "rope_parameters": LONG,
    "original_max_position_embeddings": 64,
    "hidden_size": 256,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "sliding_window": 512,
}
GEMMA = {
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 40,
    "sliding_window_pattern": 2,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 2": ("llama", {"num_key_value_heads": 4}),
    "llama 2, stretched": ("llama", {"rope_parameters": LINEAR}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama 3": ("llama", {"rope_parameters": LLAMA3}),
    "llama 3.2": ("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 32}),
    "mistral": ("mistral", {"sliding_window": None, "head_dim": 32}),
    "mistral, window of the whole context": ("mistral", {"sliding_window": 256}),
    "qwen 2.5": ("qwen2", {}),
    "qwen 2.5, tied": ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "qwen 3": ("qwen3", {"head_dim": 32}),
    "qwen 3, tied, biases": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True, "attention_bias": True}),
    "qwen 3, long": ("qwen3", {"head_dim": 16, "rope_parameters": YARN}),
    "mistral, window of a part": ("mistral", {"sliding_window": 40}),
    "qwen 2, windows in some layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1},
    ),
    "phi 3": ("phi3", {"pad_token_id": 0, "sliding_window": 47}),
    "phi 4 mini": ("phi3", PHI4),
    "gemma 3": ("gemma3_text", GEMMA),
    "gemma 3, large": (
        "gemma3_text",
        {
            **GEMMA,
            "query_pre_attn_scalar": 24,
            "sliding_window": 100,
            "sliding_window_pattern": 3,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
}
IDS = torch.randint(0, 512, (150,), generator=torch.Generator().manual_seed(7)).tolist()


def make(folder: Path, kind: str, change: dict[str, Any], dtype: torch.dtype) -> Any:
    """A random model, saved as `transformers` saves it; biases and norms are moved off their initial 0 and 1."""
    torch.manual_seed(11)
    config = AutoConfig.for_model(kind, **{**BASE, **change})
    model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.2 if parameter.dim() == 1 else 0.15
            parameter.copy_(torch.randn_like(parameter) * spread + (1.0 if "norm" in name else 0.0))
    model = model.to(dtype)
    model.save_pretrained(folder)
    return model


@torch.inference_mode()
def theirs(model: Any) -> Tensor:
    logits: Tensor = model(torch.tensor([IDS])).logits[0].float()
    return logits


@pytest.mark.parametrize("name", FAMILIES)
def test_float32_logits_equal_transformers(tmp_path: Path, name: str) -> None:
    expected = theirs(make(tmp_path, *FAMILIES[name], torch.float32))
    model = load_model(tmp_path, "auto")
    assert model.dtype is torch.float32
    for chunk in (len(IDS), 64):
        torch.testing.assert_close(forward(model, IDS, chunk), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("name", ["llama 3.2", "mistral", "qwen 2.5", "qwen 3", "phi 4 mini", "gemma 3, large"])
def test_bf16_is_about_as_close_to_float32_as_transformers_is(tmp_path: Path, name: str) -> None:
    kind, change = FAMILIES[name]
    # heads like slipstream-code's: its kernels are compiled once for all of these tests
    reference = make(tmp_path, kind, {**change, "head_dim": 64}, torch.bfloat16)
    rounded = theirs(reference)
    exact = theirs(reference.float())
    model = load_model(tmp_path, "bfloat16")
    error = (forward(model, IDS, 64) - exact).pow(2).mean().sqrt()
    assert error < 1.6 * (rounded - exact).pow(2).mean().sqrt()


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3")
    make(folder, *FAMILIES["qwen 3"], torch.float32)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, r"implies no tensor model\.layers\.0\.self_attn\.k_norm\.weight"),
        ({"architectures": ["Qwen2ForCausalLM"]}, r"self_attn\.q_proj\.bias is missing"),
        ({"num_hidden_layers": 2}, r"implies no tensor model\.layers\.2\."),
        ({"attention_bias": True}, r"self_attn\.q_proj\.bias is missing"),
        ({"head_dim": 16}, r"q_proj\.weight has shape \(128, 64\); config\.json implies \(64, 64\)"),
        (
            {"use_sliding_window": True, "sliding_window": 64, "layer_types": None},
            "layer_types must be given where use_",
        ),
        ({"layer_types": ["sliding_attention"] * 3}, "layer_types must be full_attention for every layer without use_"),
        (
            {"layer_types": ["chunked_attention"] * 3},
            "layer_types must be full_attention or sliding_attention for each",
        ),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping must be absent"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor must be a number from 0 to 1; got 1.5"),
        (
            {"rope_parameters": {**LONG, "partial_rotary_factor": 1.0, "original_max_position_embeddings": 64}},
            "short_factor must have 16 numbers",
        ),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_parameters must be absent, or of rope_"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope_parameters: .*original_max_position"),
        ({"rope_parameters": {**YARN, "mscale": 0.7}}, r"rope_parameters\.mscale is not supported"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "rope_scaling: .*>= 1"),
    ],
)
def test_a_folder_that_is_another_model_is_named(
    qwen3: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    (tmp_path / "model.safetensors").symlink_to(qwen3 / "model.safetensors")
    config = json.loads((qwen3 / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ConfigError, match=message):
        load_model(tmp_path, "auto")


def test_the_older_spelling_of_rope_scaling_is_the_same_model(tmp_path: Path) -> None:
    expected = theirs(make(tmp_path, *FAMILIES["llama 3"], torch.float32))
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    scaling = raw.pop("rope_parameters")
    raw["rope_theta"] = scaling.pop("rope_theta")
    path.write_text(json.dumps({**raw, "rope_scaling": scaling}))
    torch.testing.assert_close(forward(load_model(tmp_path, "auto"), IDS, 150), expected, atol=2e-4, rtol=2e-4)


def test_longrope_has_its_short_factors_where_the_served_context_is_short(tmp_path: Path) -> None:
    reference = make(tmp_path, *FAMILIES["phi 4 mini"], torch.float32)
    with torch.inference_mode():
        expected = reference(torch.tensor([IDS[:64]])).logits[0]
    found = forward(load_model(tmp_path, "auto", context_tokens=64), IDS[:64], 40)
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)
    assert not torch.allclose(forward(load_model(tmp_path, "auto"), IDS[:64], 64), expected, atol=1e-2)


@pytest.mark.parametrize("outer", ["model.language_model.", "language_model.model."])
def test_the_decoder_of_a_model_that_also_sees_images(tmp_path: Path, outer: str) -> None:
    reference = make(tmp_path, *FAMILIES["gemma 3"], torch.float32)
    expected, whole = theirs(reference), tmp_path / "whole"
    # as folders of the larger models are: the decoder's fields apart, with those left out that are the family's
    text = json.loads((tmp_path / "config.json").read_text())
    for field in ("architectures", "rope_parameters", "layer_types", "vocab_size", "tie_word_embeddings"):
        del text[field]
    whole.mkdir()
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "vocab_size": 512, "text_config": text}
    (whole / "config.json").write_text(json.dumps(config))
    tensors = {
        outer + name.removeprefix("model."): one for name, one in load_file(tmp_path / "model.safetensors").items()
    }
    save_file({**tensors, "vision_tower.weight": torch.zeros(1)}, whole / "model.safetensors")
    (whole / "tokenizer.json").touch()
    torch.testing.assert_close(forward(load_model(whole, "auto"), IDS, 64), expected, atol=2e-4, rtol=2e-4)
    assert model_folder.read_path(whole, "local.chat_model", needs_chat_template=False).context_tokens == 256
