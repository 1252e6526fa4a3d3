"""The embedded engine on one GPU against what the GPU can do, with a model of a given shape and random weights.

    python -m benchmarks.engine_gpu [--shape 8b|small] [--device cuda] [--batches 1 8 32 64] [--prompts 1500 3000 6000]

In one process, without HTTP. `decode`: tokens/s of plain steps, and as a share of what reading weights and contexts
once per step allows at the bandwidth a copy reaches here; what a step costs without recorded graphs; and what one costs
that checks 3 guesses per sequence. Guesses pay while that is less than the tokens they give: the first batch size where
they do not is the crossover. `prompt`: first token cold and again with its prefix cached, and the cold one's FLOP/s as
a share of what a large product reaches here. Last line: JSON. `--device cpu --shape small` tries the script without a
GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.needs import missing
from engines.embedded.config import EngineConfig, KVConfig, SchedulerConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.store import KVStore
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.linears import PlainLinears
from engines.embedded.models.llama import Llama
from engines.embedded.request import Request, Sampling
from engines.tokenizer.text_stream import BytesTextStream
from speculative.config import SpeculationConfig

GUESSES = 3
TOKENS_PER_CHECK = (1.5, 2.0, 2.5, 3.0)
STEPS = 64
CONTEXT_TOKENS = 256


def shape(name: str) -> ModelConfig:
    """The shape of Llama 3 8B, or one small enough for a CPU."""
    wide = name == "8b"
    return ModelConfig(
        hidden_size=4096 if wide else 128,
        num_hidden_layers=32 if wide else 2,
        num_attention_heads=32 if wide else 4,
        num_key_value_heads=8 if wide else 2,
        head_dim=128 if wide else 32,
        intermediate_size=14336 if wide else 256,
        vocab_size=128256 if wide else 2048,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        rope_scaling=None,
        tie_word_embeddings=False,
        qkv_bias=False,
        output_bias=False,
        headless=False,
        mlp_bias=False,
        qk_norm=False,
        dtype="bfloat16",
    )


class RandomCheckpoint:
    """Random tensors, created on the device at every call: no file is read."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bytes = 0
        """The size of all tensors so far, in bf16."""

    def read(self, name: str, size: tuple[int, ...]) -> Tensor:
        """Small random numbers, or numbers about 1 for a norm."""
        values = torch.randn(size, device=self.device, dtype=torch.bfloat16) * 0.02
        self.bytes += values.numel() * 2
        return values + 1 if len(size) == 1 else values

    def take(self, name: str, size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """As `read`, converted to `dtype`."""
        return self.read(name, size).to(dtype)


class Bench:
    """One model on one device, and engines over it."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.device = device
        self.shape = shape(name)
        checkpoint = RandomCheckpoint(device)
        linears = PlainLinears(torch.bfloat16, device)
        self.model = Llama(self.shape, checkpoint, torch.bfloat16, linears, device)  # type: ignore[arg-type]
        # an embedding is looked up, not read
        self.weight_bytes = checkpoint.bytes - self.shape.vocab_size * self.shape.hidden_size * 2

    def engine(self, *, guesses: bool = False, graphs: bool = True, chunk: int = 2048) -> Engine:
        """A new engine with an empty cache."""
        kv = KVConfig(budget_bytes=24 * 2**30 if self.device.type == "cuda" else 2**28)
        config = EngineConfig(
            kv=kv,
            cuda_graphs=graphs,
            scheduler=SchedulerConfig(max_batch_tokens=chunk, max_running=512),
            speculation=SpeculationConfig(
                method="ngram" if guesses else "off", governed=False, max_drafts=GUESSES, ngram_least=1
            ),
        )
        store = KVStore(self.shape, kv, torch.bfloat16, 8192, self.device)
        return Engine(self.model, store, config, lambda: BytesTextStream({}))

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, work: Callable[[], object], rounds: int) -> float:
        """Median seconds of one call."""
        for _ in range(2):
            work()
        times = []
        for _ in range(rounds):
            self.synchronize()
            started = time.perf_counter()
            work()
            self.synchronize()
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    def prompt(self, tokens: int, seed: int) -> tuple[int, ...]:
        """A prompt that repeats one phrase, so that the n-gram method always finds drafts."""
        source = random.Random(seed)
        phrase = [source.randrange(5, self.shape.vocab_size) for _ in range(16)]
        return tuple((phrase * (tokens // 16 + 1))[:tokens])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("8b", "small"), default="8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--prompts", type=int, nargs="+", default=[1500, 3000, 6000])
    arguments = parser.parse_args()
    if torch.device(arguments.device).type == "cuda" and not torch.cuda.is_available():
        missing("a GPU and PyTorch for it; --device cpu --shape small runs on a processor")
    bench = Bench(arguments.shape, torch.device(arguments.device))
    bandwidth, peak = copy_bandwidth(bench), product_flops(bench)
    print(
        f"weights {bench.weight_bytes / 1e9:.2f} GB, copy {bandwidth / 1e9:.0f} GB/s, product {peak / 1e12:.1f} TFLOP/s"
    )
    results: dict[str, Any] = {"bandwidth_gb_s": bandwidth / 1e9, "peak_tflops": peak / 1e12}
    results["decode"] = {}
    for batch in arguments.batches:
        plain_s = decode_step_s(bench, batch, graphs=True)
        eager_s = decode_step_s(bench, batch, graphs=False)
        guessed_s = decode_step_s(bench, batch, guesses=True)
        bound_s = (bench.weight_bytes + batch * CONTEXT_TOKENS * kv_bytes(bench)) / bandwidth
        row = {
            "tokens_per_s": batch / plain_s,
            "share_of_bound": bound_s / plain_s,
            "without_graphs": eager_s / plain_s,
            "check_costs_steps": guessed_s / plain_s,
        }
        results["decode"][str(batch)] = row
        print(f"decode {batch:4}  " + "  ".join(f"{name} {value:.2f}" for name, value in row.items()), flush=True)
    results["guesses_pay_below_batch"] = {
        str(tokens): next(
            (b for b in arguments.batches if results["decode"][str(b)]["check_costs_steps"] >= tokens), None
        )
        for tokens in TOKENS_PER_CHECK
    }
    results["prompts"] = {}
    for tokens in arguments.prompts:
        row = first_token(bench, tokens, peak)
        results["prompts"][str(tokens)] = row
        print(f"prompt {tokens:5}  " + "  ".join(f"{name} {value:.3g}" for name, value in row.items()), flush=True)
    print(json.dumps(results))


def copy_bandwidth(bench: Bench) -> float:
    """Bytes per second read and written by a copy."""
    size = 2**30 if bench.device.type == "cuda" else 2**26
    source = torch.empty(size, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    return 2 * size / bench.timed(lambda: target.copy_(source), 10)


def product_flops(bench: Bench) -> float:
    """FLOP/s of a large bf16 product of random numbers."""
    width = 8192 if bench.device.type == "cuda" else 512
    a, b = (torch.randn(width, width, device=bench.device).bfloat16() for _ in range(2))
    return 2 * width**3 / bench.timed(lambda: a @ b, 10)


def kv_bytes(bench: Bench) -> int:
    """Bytes of keys and values per token."""
    return bench.shape.kv_elements_per_token * 2


def decode_step_s(bench: Bench, batch: int, *, graphs: bool = True, guesses: bool = False) -> float:
    """Median seconds of a step in which `batch` sequences generate."""
    engine = bench.engine(graphs=graphs, guesses=guesses)
    for at in range(batch):
        engine.submit(Request(f"{at}", (bench.prompt(CONTEXT_TOKENS, at),), Sampling(10 * STEPS, 0.0)))
    while engine.scheduler.waiting or any(sequence.is_new for sequence in engine.scheduler.running):
        engine.step()
    return bench.timed(engine.step, STEPS)


def first_token(bench: Bench, tokens: int, peak: float) -> dict[str, float]:
    """The time to the first token, cold and warm, in milliseconds, and the cold prompt's FLOP/s as a share of the
    product's."""
    engine = bench.engine()
    cold: list[float] = []
    warm: list[float] = []
    for number in range(5):
        prompt = bench.prompt(tokens, 1000 * tokens + number)
        for times in (cold, warm):
            bench.synchronize()
            started = time.perf_counter()
            engine.submit(Request(f"{number}", (prompt,), Sampling(1, 0.0)))
            while engine.busy:
                engine.step()
            bench.synchronize()
            times.append(time.perf_counter() - started)
    cold_s, warm_s = statistics.median(cold), statistics.median(warm)
    attention = 2 * tokens**2 * bench.shape.num_attention_heads * bench.shape.head_dim * bench.shape.num_hidden_layers
    flops = bench.weight_bytes * tokens + attention
    return {
        "cold_ms": 1e3 * cold_s,
        "warm_ms": 1e3 * warm_s,
        "ratio": cold_s / warm_s,
        "share_of_peak": flops / cold_s / peak,
    }


if __name__ == "__main__":
    main()
