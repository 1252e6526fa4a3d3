"""What 8-bit weights and guided output cost or save, step by step, without HTTP.

    python -m benchmarks.engine_steps [--model models/slipstream-chat] [--batches 1 8 32] [--threads 1]

Variants of one engine over the same weights take turns, so a busy machine hits all alike; the time is CPU time of the
engine's thread, and of three turns the best is told: what other work on the cores costs is no part of it. `int8`: the
same in 8-bit weights. `guided`: bf16, every sequence held to a JSON schema that never ends. Last line: JSON with tokens
per CPU second by batch and variant, and prompt tokens per CPU second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from pathlib import Path

import msgspec
import torch

from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig, GrammarConfig
from engines.embedded.engine import Engine
from engines.embedded.grammar.compiler import GrammarCompiler
from engines.embedded.grammar.guide import Guide
from engines.embedded.grammar.spec import schema_spec
from engines.embedded.request import Request, Sampling
from engines.tokenizer.tokenizer import Tokenizer

ITEM = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 20}}}
SCHEMA = {"type": "array", "items": ITEM, "minItems": 200}
"""A schema whose shortest output is longer than any answer, or the batch would shrink before it is measured."""
PROMPT_TOKENS, OUTPUT_TOKENS, ROUNDS = 96, 150, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-chat")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.load(arguments.model)
    plain = EngineConfig(model=arguments.model, threads=arguments.threads, dtype="bfloat16")
    configs = {"bf16": plain, "int8": msgspec.structs.replace(plain, quantization="int8")}
    engines = {name: build_engine(config, 1024, tokenizer) for name, config in configs.items()}
    vocabulary = engines["bf16"]._vocabulary
    guide = asyncio.run(compiled(arguments.model, vocabulary, tokenizer.end_ids))
    variants = {"bf16": (engines["bf16"], None), "int8": (engines["int8"], None), "guided": (engines["bf16"], guide)}
    results: dict[str, dict[str, float]] = {}
    for batch in arguments.batches:
        best: dict[str, float] = {}
        for turn in range(ROUNDS):
            for name, (engine, form) in variants.items():
                prefill, decode = measure(engine, form, vocabulary, batch, seed=turn)
                best[name] = max(best.get(name, 0.0), round(decode, 1))
                best[f"{name} prompt"] = max(best.get(f"{name} prompt", 0.0), round(prefill, 1))
        results[str(batch)] = best
        print(f"{batch:3}  " + "  ".join(f"{name} {value}" for name, value in best.items()))
    print(json.dumps({"tokens_per_cpu_s": results, "threads": torch.get_num_threads()}))


async def compiled(model: str, vocabulary: int, end_ids: frozenset[int]) -> Guide:
    config = GrammarConfig()
    return await GrammarCompiler(Path(model), vocabulary, end_ids, config).compile(schema_spec(SCHEMA, "f", config))


def measure(engine: Engine, form: Guide | None, vocabulary: int, batch: int, seed: int) -> tuple[float, float]:
    """Prompt tokens and generated tokens per CPU second; prompts are new each time, so no cache helps."""
    source = random.Random(f"{seed}{form}{id(engine)}{batch}")
    for at in range(batch):
        prompt = tuple(source.randrange(5, vocabulary) for _ in range(PROMPT_TOKENS))
        engine.submit(Request(f"{at}", (prompt,), Sampling(OUTPUT_TOKENS, 1.0, seed=at), guide=form))
    started = time.thread_time()
    while any(sequence.is_new for sequence in engine.scheduler.running) or engine.scheduler.waiting:
        engine.step()
    begun = time.thread_time()
    before = engine.stats.generation_tokens
    while len(engine.scheduler.running) == batch:
        engine.step()
    decode = (engine.stats.generation_tokens - before) / (time.thread_time() - begun)
    engine.abort("", prefix=True)
    return batch * PROMPT_TOKENS / (begun - started), decode


if __name__ == "__main__":
    main()
