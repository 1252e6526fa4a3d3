"""Decode speed as a share of the memory's speed: at one stream, a token reads every weight once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.engine_cpu_rivals.figures import Cells, pooled
from engines.embedded.combinations import with_quantization
from engines.embedded.config import EngineConfig
from engines.embedded.models.config import ModelConfig

READ_BYTES = 1 << 29
ROUNDS = 8
WEIGHT_BYTES = {"embedded-bf16": 2.0, "embedded-int8": 1.0, "llama.cpp-f16": 2.0, "llama.cpp-q8_0": 34 / 32}
"""Bytes per weight. Rivals that are not listed choose their format themselves and get no share."""


def measured_bytes_per_s(threads: int) -> float:
    """The bandwidth of the quickest of `ROUNDS` sums over half a gigabyte on `threads` threads."""
    # a rival's measurement does not wait for torch
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    numbers = torch.ones(READ_BYTES // 8, dtype=torch.int64)
    quickest = min(_seconds(numbers.sum) for _ in range(ROUNDS))
    torch.set_num_threads(before)
    return READ_BYTES / quickest


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def read_weights(model: ModelConfig) -> int:
    """The number of weights that a token reads; of the input embedding it reads one row, which is not counted."""
    heads = (2 * model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
    layer = model.hidden_size * (heads + 3 * model.intermediate_size)
    return model.num_hidden_layers * layer + model.vocab_size * model.hidden_size


def weight_bytes(rival: str, path: Path) -> float | None:
    """Bytes per weight in the rival's format; None if the format is not known."""
    if rival == "embedded":
        config = with_quantization(EngineConfig(model=str(path)), on_gpu=False)
        wide = ModelConfig.read(path).dtype != "bfloat16"
        return 1.0 if config.quantization == "int8" else 4.0 if wide else 2.0
    return WEIGHT_BYTES.get(rival)


def shares(cells: Cells, path: Path, bytes_per_s: float) -> dict[str, float]:
    """By rival, the share of the memory bandwidth that one generating stream uses."""
    weights = read_weights(ModelConfig.read(path))
    found = {}
    for rival, row in cells.items():
        size = weight_bytes(rival, path)
        gaps = sorted(pooled(row.get(1, []), "gaps_s"))
        if size is not None and gaps:
            found[rival] = round(weights * size / gaps[len(gaps) // 2] / bytes_per_s, 3)
    return found
