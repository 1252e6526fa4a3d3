"""Small random models as GGUF files, written with the `gguf` package as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from torch import Tensor

from tests.engines.embedded.tiny import CONFIG, SHIPPED, random_weights

LLAMA: dict[str, Any] = {**CONFIG, "hidden_size": 64, "head_dim": 16, "intermediate_size": 96, "rope_theta": 100_000.0}
QWEN2: dict[str, Any] = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": False}
QWEN3: dict[str, Any] = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 4}
WIDE: dict[str, Any] = {"hidden_size": 256, "head_dim": 64, "intermediate_size": 256}
"""Rows of whole K-quant blocks."""
SCALES = {"Q4_K": (0, 4), "Q5_K": (0, 4), "Q6_K": (208, 2)}
"""Where in a block of a K-quant its scales lie, float16, and their bytes."""
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
NAMES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
}  # fmt: skip
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}<|assistant|>"
)


def weights_of(config: dict[str, Any]) -> dict[str, Tensor]:
    """A checkpoint's tensors, biases and norms of its family included, small enough for probabilities that differ."""
    weights = {name: one if "norm" in name else one / 2 for name, one in random_weights(config).items()}
    bases = random_weights(config, seed=1)
    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}.self_attn"
        for name in "qkv" if config["architectures"] == ["Qwen2ForCausalLM"] else "":
            weights[f"{prefix}.{name}_proj.bias"] = bases[f"{prefix}.{name}_proj.weight"][:, 0]
        for name in "qk" if config["architectures"] == ["Qwen3ForCausalLM"] else "":
            weights[f"{prefix}.{name}_norm.weight"] = 1 + bases[f"{prefix}.{name}_proj.weight"][0, : config["head_dim"]]
    return weights


def write_gguf(
    path: Path,
    config: dict[str, Any] = LLAMA,
    kind: str = "F32",
    changed: Mapping[str, Any] | None = None,
    head: np.ndarray | None = None,
) -> Path:
    """The file, with the shipped chat model's vocabulary. changed: entries that are another, by the last part of their
    names; None: there is none. head: of a model that scores, a row for each label."""
    name = NAMES[config["architectures"][0]]
    writer = gguf.GGUFWriter(str(path), name)
    head_dim = config["head_dim"]
    entries: dict[str, Any] = {
        f"{name}.block_count": config["num_hidden_layers"],
        f"{name}.context_length": config["max_position_embeddings"],
        f"{name}.embedding_length": config["hidden_size"],
        f"{name}.feed_forward_length": config["intermediate_size"],
        f"{name}.attention.head_count": config["num_attention_heads"],
        f"{name}.attention.head_count_kv": config["num_key_value_heads"],
        f"{name}.attention.key_length": head_dim,
        f"{name}.attention.value_length": head_dim,
        f"{name}.rope.dimension_count": head_dim,
        f"{name}.rope.freq_base": config["rope_theta"],
        f"{name}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        **_vocabulary(),
    }
    changed = changed or {}
    entries = {key: changed.get(key.rpartition(".")[2], value) for key, value in entries.items()}
    entries.update({key: value for key, value in changed.items() if "." in key})
    for key, value in entries.items():
        if value is not None:
            _add(writer, key, value)
    for tensor, numbers in weights_of(config).items():
        stored, rows = _stored(tensor), numbers.numpy()
        if name == "llama" and (heads := _heads(tensor, config)):
            # as llama.cpp's converter does
            rows = rows.reshape(heads, 2, len(rows) // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)
        quantized = gguf.GGMLQuantizationType[kind if rows.ndim > 1 else "F32"]
        if quantized.name in SCALES:
            packed = random_blocks(quantized.name, rows.shape, seed=len(writer.tensors[0]))
        else:
            packed = gguf.quants.quantize(np.ascontiguousarray(rows, np.float32), quantized)
        writer.add_tensor(stored, packed, raw_dtype=quantized)
    if head is not None:
        writer.add_tensor("cls.output.weight", head.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_blocks(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Blocks of a K-quant, which the library does not write: any bits are numbers of a block, once its scales are
    small."""
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = np.random.default_rng(seed).integers(0, 256, (shape[0], shape[1] // elements, size), np.uint8)
    # numbers of about a twentieth: the second scale of two is of what is subtracted
    scales = np.array([5e-5] if kind == "Q6_K" else [2e-4, 2e-4 * (7.5 if kind == "Q4_K" else 15.5)], np.float16)
    if kind == "Q5_K":
        scales /= 2
    start, length = SCALES[kind]
    blocks[..., start : start + length] = scales.view(np.uint8)
    return blocks.reshape(shape[0], -1)


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


def _vocabulary() -> dict[str, Any]:
    folder = SHIPPED / "slipstream-chat"
    definition = json.loads((folder / "tokenizer.json").read_text())
    added = {token["id"]: token for token in definition["added_tokens"]}
    texts = {id_: text for text, id_ in definition["model"]["vocab"].items()}
    texts.update({id_: token["content"] for id_, token in added.items()})
    kinds = [(3 if added[id_]["special"] else 4) if id_ in added else 1 for id_ in range(len(texts))]
    end = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [texts[id_] for id_ in range(len(texts))],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [
            merge if isinstance(merge, str) else " ".join(merge) for merge in definition["model"]["merges"]
        ],
        "tokenizer.ggml.eos_token_id": end if isinstance(end, int) else end[0],
        "tokenizer.chat_template": TEMPLATE,
    }


def _stored(tensor: str) -> str:
    if tensor.startswith("model.layers."):
        _, _, layer, *parts, kind = tensor.split(".")
        return f"blk.{layer}.{PARTS['.'.join(parts)]}.{kind}"
    name, _, kind = tensor.rpartition(".")
    return f"{OUTER[name]}.{kind}"


def _heads(tensor: str, config: dict[str, Any]) -> int:
    """Of a tensor whose rows are stored as the rotation wants them; 0: they are not."""
    if ".q_proj." in tensor:
        return int(config["num_attention_heads"])
    return int(config["num_key_value_heads"]) if ".k_proj." in tensor else 0
