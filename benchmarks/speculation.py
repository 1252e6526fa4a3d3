"""What guessing ahead yields: the engine without drafts, with n-gram drafts always, and with the governor.

    python -m benchmarks.speculation [--model models/slipstream-code] [--batches 1 8 32] [--threads 1]

No HTTP: one process, three engines over the same weights, step by step. Two workloads: `repeat`, prompts that quote
themselves, decoded greedily (edits, and the loops small models fall into), and `sampled`, temperature 1 on random
prompts, where guesses are mostly wrong. Modes take turns, so a busy machine hits all alike; the time is CPU time of the
engine's thread. Last line: JSON with tokens per CPU second by workload, batch and mode, and the accepted length.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch

from engines.embedded.config import EngineConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import Model, load_model
from engines.embedded.request import Request, Sampling
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig

MODES = {
    "off": SpeculationConfig(method="off"),
    "always": SpeculationConfig(method="ngram", governed=False),
    "governed": SpeculationConfig(method="ngram"),
}
PROMPT_TOKENS, OUTPUT_TOKENS, ROUNDS = 96, 200, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-code")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    folder = Path(arguments.model)
    model, tokenizer = load_model(folder, "auto"), Tokenizer.load(folder)
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for workload in ("repeat", "sampled"):
        for batch in arguments.batches:
            row = measure(model, tokenizer, str(folder), workload, batch)
            results.setdefault(workload, {})[str(batch)] = row
            print(f"{workload:8} {batch:3}  " + "  ".join(f"{name} {value}" for name, value in row.items()))
    print(json.dumps(results))


def measure(model: Model, tokenizer: Tokenizer, folder: str, workload: str, batch: int) -> dict[str, float]:
    engines = {}
    for name, speculation in MODES.items():
        config = EngineConfig(model=folder, speculation=speculation)
        store = KVStore(model.config, config.kv, model.dtype, model.config.max_position_embeddings)
        # CPU time as the clock: the governor then judges by what this measures
        engines[name] = Engine(model, store, config, tokenizer.text_stream, clock=time.thread_time)
    spent_s = dict.fromkeys(engines, 0.0)
    tokens = dict.fromkeys(engines, 0)
    for round_ in range(ROUNDS + 1):
        for name, engine in engines.items():
            for number in range(batch):
                engine.submit(request(workload, round_ * batch + number))
            engine.step()  # prompts
            before, started = engine.stats.generation_tokens, time.thread_time()
            while engine.busy:
                engine.step()
            if round_:  # the first warms up, and the governor learns
                spent_s[name] += time.thread_time() - started
                tokens[name] += engine.stats.generation_tokens - before
    row = {name: round(tokens[name] / spent_s[name], 1) for name in engines}
    row["accept_length"] = round(engines["always"].stats.accept_length, 2)
    return row


def request(workload: str, number: int) -> Request:
    source = random.Random(number)
    if workload == "repeat":
        phrase = [source.randrange(300, 2000) for _ in range(12)]
        prompt = (phrase * PROMPT_TOKENS)[:PROMPT_TOKENS]
        sampling = Sampling(max_tokens=OUTPUT_TOKENS, temperature=0.0)
    else:
        prompt = [source.randrange(300, 2000) for _ in range(PROMPT_TOKENS)]
        sampling = Sampling(max_tokens=OUTPUT_TOKENS, temperature=1.0, seed=number)
    return Request(f"r{number}", (tuple(prompt),), sampling)


if __name__ == "__main__":
    main()
