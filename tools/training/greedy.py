"""Generates with the serving engine, step by step in this process, so that measurements match what users get."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engines.embedded.config import EngineConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import load_model
from engines.embedded.request import Request, Sampling
from engines.embedded.stats import Stats
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig


class Generated(NamedTuple):
    """Texts in the order of the prompts, and the engine's counters."""

    texts: list[str]
    stats: Stats


def generate(
    folder: Path,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    stop: tuple[str, ...] = (),
    temperature: float = 0.0,
    speculation: SpeculationConfig | None = None,
    together: int = 8,
) -> Generated:
    """Continue each prompt. together: sequences computed at a time."""
    tokenizer = Tokenizer.load(folder)
    engine = engine_of(folder, tokenizer, speculation)
    texts = [""] * len(prompts)
    for start in range(0, len(prompts), together):
        for number in range(start, min(start + together, len(prompts))):
            sampling = Sampling(
                max_tokens=max_tokens, temperature=temperature, seed=number, stop=stop, stop_ids=tokenizer.end_ids
            )
            engine.submit(Request(str(number), (tuple(prompts[number]),), sampling))
        while engine.busy:
            for delta in engine.step():
                texts[int(delta.rid)] += delta.text
    engine.close()
    return Generated(texts, engine.stats)


def engine_of(folder: Path, tokenizer: Tokenizer, speculation: SpeculationConfig | None = None) -> Engine:
    """An engine of this model, to be stepped by hand. Its clock is the thread's CPU time."""
    model = load_model(folder, "auto")
    config = EngineConfig(model=str(folder), speculation=speculation or SpeculationConfig())
    store = KVStore(model.config, config.kv, model.dtype, model.config.max_position_embeddings)
    return Engine(model, store, config, tokenizer.text_stream, clock=time.thread_time)
