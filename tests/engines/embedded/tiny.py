"""Small random checkpoints and an engine that tests drive by hand."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor

from engines.embedded.config import EngineConfig, KVConfig, SchedulerConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import load_model
from engines.embedded.output import Delta
from engines.embedded.request import Request, Sampling
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig

SHIPPED = Path(__file__).parents[3] / "models"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "vocab_size": 2048,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}


def random_weights(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Every tensor of a Llama checkpoint. Scaled so that logits are far from ties."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * 0.3

    hidden, head, ff = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    weights = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden),
        "model.norm.weight": 1 + matrix(hidden),
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(config["vocab_size"], hidden)
    for index in range(config["num_hidden_layers"]):
        shapes = {
            "self_attn.q_proj": (q, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, q),
            "mlp.gate_proj": (ff, hidden),
            "mlp.up_proj": (ff, hidden),
            "mlp.down_proj": (hidden, ff),
        }
        for name, shape in shapes.items():
            weights[f"model.layers.{index}.{name}.weight"] = matrix(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{index}.{name}.weight"] = 1 + matrix(hidden)
    return weights


def write_model(folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> Path:
    """A model folder with the shipped chat tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, str(folder / "model.safetensors"))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(SHIPPED / "slipstream-chat" / name, folder / name)
    return folder


def make_engine(
    folder: Path,
    *,
    pages: int = 256,
    page_tokens: int = 4,
    speculation: SpeculationConfig | None = None,
    dtype: Literal["float32", "bfloat16"] = "float32",
    kv_dtype: Literal["auto", "fp8", "int8"] = "auto",
    clock: Callable[[], float] = time.monotonic,
    **scheduler: Any,
) -> Engine:
    """An engine with `pages` pages."""
    model = load_model(folder, dtype)
    shape, kv = model.config, KVConfig(page_tokens=page_tokens, dtype=kv_dtype)
    token_bytes = kv.token_bytes(shape.kv_elements_per_token // shape.head_dim, shape.head_dim, model.dtype.itemsize)
    kv = msgspec.structs.replace(kv, budget_bytes=pages * page_tokens * token_bytes)
    config = EngineConfig(
        model=str(folder),
        scheduler=SchedulerConfig(**scheduler),
        kv=kv,
        speculation=speculation or SpeculationConfig(),
    )
    context = min(model.config.max_position_embeddings, pages * page_tokens)
    store = KVStore(model.config, kv, model.dtype, context)
    return Engine(model, store, config, Tokenizer.load(folder).text_stream, clock)


def request(
    rid: str,
    prompt: Iterable[int],
    *,
    choices: int = 1,
    priority: int = 0,
    cache_salt: str = "",
    speculate: bool = True,
    **sampling: Any,
) -> Request:
    """Greedy unless said otherwise."""
    settings = {"max_tokens": 16, "temperature": 0.0, **sampling}
    return Request(
        rid,
        (tuple(prompt),),
        Sampling(**settings),
        choices_per_prompt=choices,
        priority=priority,
        cache_salt=cache_salt,
        speculate=speculate,
    )


def finish(engine: Engine, *requests: Request) -> dict[tuple[str, int], list[Delta]]:
    """Submit all and step until idle; the deltas of each choice."""
    for one in requests:
        engine.submit(one)
    return drain(engine)


def drain(engine: Engine) -> dict[tuple[str, int], list[Delta]]:
    """Step until idle."""
    deltas: dict[tuple[str, int], list[Delta]] = {}
    while engine.busy:
        for delta in engine.step():
            deltas.setdefault((delta.rid, delta.index), []).append(delta)
    return deltas


def text(deltas: list[Delta]) -> str:
    """The whole text."""
    return "".join(delta.text for delta in deltas)
