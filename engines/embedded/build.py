"""Builds an engine from its settings and a model folder."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import msgspec
import torch

from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig
from engines.embedded.cores import free_bytes, memory_bytes
from engines.embedded.device import decided, device_of
from engines.embedded.draft_sources import head_folder
from engines.embedded.engine import Engine
from engines.embedded.freed_memory import released_at_once
from engines.embedded.kv.budget import budget_bytes
from engines.embedded.kv.events import BlockEvents
from engines.embedded.kv.store import KVStore, kv_token_bytes
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.registry import load_model
from engines.embedded.models.rope import LongScaling
from engines.embedded.pooling import Pooling
from engines.embedded.quantization.linears import dtype_of, linears_of
from engines.tokenizer.tokenizer import Tokenizer
from speculative.eagle.checkpoint import token_bytes

logger = logging.getLogger(__name__)
GPU_SHARE = 3.4
"""A GPU belongs to the engine alone. With this factor, `budget_bytes` gives it .85 of the free memory."""


def build_engine(config: EngineConfig, context_tokens: int, tokenizer: Tokenizer) -> Engine:
    """Load the model and reserve its key and value memory. Call it in the thread that will run the engine.

    Raises ConfigError that names the fault in the model folder or the settings.
    """
    config = decided(config)
    assert config.threads != "auto"
    torch.set_num_threads(config.threads)
    device = device_of(config)
    _require_memory(config, context_tokens, device)
    with released_at_once():
        linears = functools.partial(linears_of, config, device=device)
        model = load_model(Path(config.model), dtype_of(config), linears, device, context_tokens)
    if model.native is not None:
        # the native kernels have their own threads, next to which OpenMP's would spin
        torch.set_num_threads(1)
    if tokenizer.vocabulary_size > model.config.vocab_size:
        raise ConfigError(
            f"{config.model}: the tokenizer has {tokenizer.vocabulary_size} tokens, and the model's vocab_size is "
            f"{model.config.vocab_size}; give the tokenizer that belongs to the model"
        )
    scaling = model.config.rope_scaling
    if isinstance(scaling, LongScaling):
        trained = scaling.original_max_position_embeddings
        logger.info(
            "positions: LongRoPE's %s factors for all requests; a context of up to %d tokens has the short ones, a "
            "longer one the long ones (engine.context_tokens)",
            "long" if context_tokens > trained else "short", trained,
        )  # fmt: skip
    head = head_folder(config.speculation, Path(config.model))
    head_bytes = 0 if head is None else token_bytes(head, model.dtype)
    kv = config.kv
    if kv.budget_bytes is None:
        per_token = head_bytes + kv_token_bytes(model.config, kv, model.dtype)
        free = torch.cuda.mem_get_info(device)[0] * GPU_SHARE if device.type == "cuda" else free_bytes()
        max_running = config.scheduler.max_running
        chosen = budget_bytes(int(free), per_token, context_tokens, max_running, kv.page_tokens)
        kv = msgspec.structs.replace(kv, budget_bytes=chosen)
    store = KVStore(model.config, kv, model.dtype, context_tokens, device, head_bytes)
    logger.info(
        "keys and values: %d tokens in %.2f GB%s; %d threads",
        store.total_tokens, store.total_pages * store.page_bytes / 1e9,
        " of the free memory" if config.kv.budget_bytes is None else " as set", config.threads,
    )  # fmt: skip
    pooling = Pooling.read(Path(config.model))
    return Engine(model, store, config, tokenizer.text_stream, events=_events(config), pooling=pooling)


def _require_memory(config: EngineConfig, context_tokens: int, device: torch.device) -> None:
    """Refuse a context whose keys, values and rotary tables alone exceed the device's memory. Raises ConfigError."""
    model = ModelConfig.read(Path(config.model))
    on_gpu = device.type == "cuda"
    memory = torch.cuda.get_device_properties(device).total_memory if on_gpu else memory_bytes()
    # keys and values in float32 need twice as much
    max_tokens = memory // (kv_token_bytes(model, config.kv, torch.bfloat16) + model.rotary_bytes_per_token)
    if context_tokens > max_tokens:
        limit = f"{config.context_tokens:,}" if config.context_tokens else "0 (the model's own limit)"
        raise ConfigError(
            f"engine.context_tokens: {limit}; one request of {context_tokens:,} tokens needs more memory for its keys, "
            f"values and rotary tables than the {memory / 1e9:.1f} GB of this {'GPU' if on_gpu else 'machine'}; give 1 "
            f"to {max_tokens:,} (--context-tokens)",
            param="engine.context_tokens",
        )


def _events(config: EngineConfig) -> BlockEvents:
    if not config.kv_events.endpoint:
        return BlockEvents()
    try:
        # only publishers need ZeroMQ
        from engines.embedded.kv.publisher import EventPublisher
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"kv_events.endpoint needs the package {error.name}; install slipstream[engine] or leave it empty",
            param="kv_events.endpoint",
        ) from None
    return EventPublisher(config.kv_events, config.kv.page_tokens)
