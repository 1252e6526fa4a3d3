"""Writes a Llama folder of Hugging Face's layout as a GGUF file. Runs in llama.cpp's environment, on its own.

python gguf_file.py FOLDER OUT {f16,q8_0}
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

np: Any = importlib.import_module("numpy")
gguf: Any = importlib.import_module("gguf")

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
NORMAL, CONTROL, UNUSED = 1, 3, 5
"""GGUF's kinds of tokens."""


def main() -> None:
    folder, out, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    config = json.loads((folder / "config.json").read_bytes())
    writer = gguf.GGUFWriter(out, "llama")
    write_shape(writer, config, kind)
    write_tokens(writer, config, json.loads((folder / "tokenizer.json").read_bytes()))
    for path in sorted(folder.glob("*.safetensors")):
        for name, values in tensors(path):
            write_tensor(writer, name, values, config, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_shape(writer: Any, config: dict[str, Any], kind: str) -> None:
    """Write the hyperparameters."""
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_name("bench")
    writer.add_file_type(getattr(gguf.LlamaFileType, "MOSTLY_" + kind.upper()))
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def write_tokens(writer: Any, config: dict[str, Any], definition: dict[str, Any]) -> None:
    """Write a byte-level BPE vocabulary; prompts arrive as ids, so only decoding has to be right."""
    names = {id_: text for text, id_ in definition["model"]["vocab"].items()}
    names.update({token["id"]: token["content"] for token in definition["added_tokens"]})
    control = {token["id"] for token in definition["added_tokens"] if token["special"]}
    ids = range(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([names.get(id_, f"[UNUSED{id_}]") for id_ in ids])
    writer.add_token_types([CONTROL if id_ in control else NORMAL if id_ in names else UNUSED for id_ in ids])
    merges = definition["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def tensors(path: Path) -> Any:
    """(name, float32 array) of every tensor in a safetensors file; numpy itself has no bfloat16."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        first, last = (start + offset for offset in entry["data_offsets"])
        raw = data[first:last]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[entry["dtype"]]).astype(np.float32)
        yield name, values.reshape(entry["shape"])


def write_tensor(writer: Any, name: str, values: Any, config: dict[str, Any], kind: str) -> None:
    """Write one tensor under llama.cpp's name and in its order of rows."""
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        number, _, part = stem.removeprefix("model.layers.").partition(".")
        target = f"blk.{number}.{LAYER_NAMES[part]}.weight"
        if part in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = config["num_attention_heads" if "q_proj" in part else "num_key_value_heads"]
            values = interleaved(values, heads)
    else:
        target = f"{OUTER_NAMES[stem]}.weight"
    if values.ndim == 1:
        writer.add_tensor(target, values)
    elif kind == "f16":
        writer.add_tensor(target, values.astype(np.float16))
    else:
        quantized = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(target, gguf.quantize(values, quantized), raw_dtype=quantized)


def interleaved(values: Any, heads: int) -> Any:
    """Place rotary pairs side by side, as llama.cpp rotates them; Hugging Face keeps them half a head apart."""
    rows, width = values.shape
    return np.ascontiguousarray(values.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width))


if __name__ == "__main__":
    main()
