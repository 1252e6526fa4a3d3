"""What guessing ahead yields: the engine without guesses, with n-grams, and with the model's draft head, as chains and
as trees.

    python -m benchmarks.speculation [--model models/slipstream-code] [--batches 1 8 32] [--trees 3,3,6 2,3,4]

No HTTP: one process, an engine per mode over the same weights, step by step. Five workloads: `repeat`, prompts that
quote themselves, decoded greedily (edits, and the loops small models fall into); `greedy`, `sampled` and `seeded`,
held-out text (for the code model Python files of this repository, for the chat model questions of the eval slices),
greedily and at temperature 1: without a seed a head's guesses are drawn, with one they are the likeliest, and may
branch; `gaps`, what an editor asks for: cursors in lines of this repository's modules with `GAP_TOKENS` of the file
around them, completed greedily until the model ends, looking the file over for guesses included. `governed` modes may
turn guessing off, the others may not. A tree is width, depth and nodes. Modes take turns, so a busy machine hits all
alike; the time is CPU time of the engine's thread. Last line: JSON with tokens per CPU second and the accepted length
(tokens per check, the target's own included) by workload, batch and mode.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import msgspec
import torch

from engines.embedded.config import EngineConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.store import KVStore
from engines.embedded.models.linears import PlainLinears
from engines.embedded.models.llama import Llama
from engines.embedded.models.registry import load_model
from engines.embedded.request import Request, Sampling
from engines.tokenizer.tokenizer import Tokenizer
from evals.slices.registry import SLICES
from evals.slices.split import Split
from speculative.config import SpeculationConfig
from tools.training.line_scores import draw

ROOT = Path(__file__).parents[1]
PROMPT_TOKENS, OUTPUT_TOKENS = 96, 96
MIN_SEQUENCES = 8
"""The fewest sequences of a round: with a batch of one, as many are run one after another."""
GAP_TOKENS, GAP_OUTPUT_TOKENS, GAPS = 1024, 64, 32
"""For `gaps`: the tokens of a prompt, the most tokens of a completion, and the completions in a round."""
Row = dict[str, dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-code")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--workloads", nargs="+", default=["repeat", "greedy", "sampled", "seeded", "gaps"])
    parser.add_argument("--modes", nargs="+", help="only these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trees", nargs="*", default=["3,3,6", "2,3,4"])
    parser.add_argument("--drafts", type=int, default=3, help="of a chain")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    folder = Path(arguments.model)
    tokenizer = Tokenizer.load(folder)
    modes = modes_of(folder, arguments.drafts, arguments.trees)
    if arguments.modes:
        modes = {name: mode for name, mode in modes.items() if name in arguments.modes}
    # PyTorch's operations check trees, so trees and the twins named "torch" get a model without our kernels
    models = {
        name: load_model(folder, "auto", lambda dtype, native=native: PlainLinears(dtype, native=native))  # type: ignore[misc]
        for name, native in (("auto", True), ("torch", False))
    }
    results: dict[str, dict[str, Row]] = {}
    for workload in arguments.workloads:
        prompts = prompts_of(workload, tokenizer)
        for batch in arguments.batches:
            row = measure(models, tokenizer, folder, modes, prompts, batch, workload, arguments.rounds)
            results.setdefault(workload, {})[str(batch)] = row
            cells = (f"{name} {cell['tokens_per_s']:.0f} ({cell['accept_length']:.2f})" for name, cell in row.items())
            print(f"{workload:8} {batch:3}  " + "  ".join(cells), flush=True)
    print(json.dumps(results))


def modes_of(folder: Path, drafts: int, trees: list[str]) -> dict[str, SpeculationConfig]:
    """The modes by name; those with a draft head only if the model has one."""
    modes = {
        "off": SpeculationConfig(),
        "off, torch": SpeculationConfig(),
        "ngram": SpeculationConfig(method="ngram", governed=False),
        "ngram governed": SpeculationConfig(method="ngram"),
    }
    if (folder / "draft").exists():
        modes["chain"] = SpeculationConfig(method="eagle", governed=False, max_drafts=drafts)
        modes["chain, torch"] = modes["chain"]
        modes["chain governed"] = SpeculationConfig(method="eagle", max_drafts=drafts)
        for tree in trees:
            width, depth, nodes = map(int, tree.split(","))
            modes[f"tree {tree}"] = SpeculationConfig(
                method="eagle", governed=False, shape="tree", tree_width=width, tree_depth=depth, max_drafts=nodes
            )
    return modes


def prompts_of(workload: str, tokenizer: Tokenizer) -> list[list[int]]:
    """The prompts of a workload, which are used in turn."""
    if workload == "repeat":
        source = random.Random(1)
        phrases = [[source.randrange(300, 2000) for _ in range(12)] for _ in range(64)]
        return [(phrase * PROMPT_TOKENS)[:PROMPT_TOKENS] for phrase in phrases]
    if workload == "gaps":
        return gaps(tokenizer)
    if tokenizer.has_chat_template:
        short = [one for one in SLICES if not one.name.startswith("retrieval")]
        chats = [one.item(seed, Split.HELD_OUT).messages for seed in range(8) for one in short]
        return [list(tokenizer.chat_ids(msgspec.to_builtins(messages))) for messages in chats]
    files = sorted((ROOT / "engines").rglob("*.py"))
    texts = [tokenizer.encode(file.read_text())[: 2 * PROMPT_TOKENS] for file in files]
    return [ids[PROMPT_TOKENS:] for ids in texts if len(ids) == 2 * PROMPT_TOKENS][:64]


def gaps(tokenizer: Tokenizer) -> list[list[int]]:
    """Prompts with about 2 · `GAP_TOKENS` characters before the cursor and a quarter as many after it."""
    texts = [file.read_text() for folder in ("engines", "gateway", "router") for file in (ROOT / folder).rglob("*.py")]
    long = sorted(text for text in texts if len(text) > 3 * GAP_TOKENS)
    prompts = []
    for cursor in draw(long, 4 * GAPS, seed=7, whole=True):
        before, after = cursor.before[-2 * GAP_TOKENS :], cursor.after[: GAP_TOKENS // 2]
        prompts.append(tokenizer.fill_ids(before[before.find("\n") + 1 :], after))
    return prompts


def measure(
    models: dict[str, Llama],
    tokenizer: Tokenizer,
    folder: Path,
    modes: dict[str, SpeculationConfig],
    prompts: list[list[int]],
    batch: int,
    workload: str,
    rounds: int,
) -> Row:
    """Tokens per CPU second while all sequences generate, without the time of their prompts."""
    engines: dict[str, Engine] = {}
    for name, speculation in modes.items():
        model = models["torch" if name.endswith("torch") or speculation.shape == "tree" else "auto"]
        config = EngineConfig(model=str(folder), speculation=speculation)
        store = KVStore(model.config, config.kv, model.dtype, model.config.max_position_embeddings)
        # CPU time as the clock, so that the governor judges by what this measures
        engines[name] = Engine(model, store, config, tokenizer.text_stream, clock=time.thread_time)
    spent_s = dict.fromkeys(engines, 0.0)
    tokens = dict.fromkeys(engines, 0)
    temperature = 1.0 if workload in ("sampled", "seeded") else 0.0
    filling = workload == "gaps"
    groups = max(1, (GAPS if filling else MIN_SEQUENCES) // batch)
    ends = frozenset(tokenizer.end_ids) if filling else frozenset()
    most = GAP_OUTPUT_TOKENS if filling else OUTPUT_TOKENS
    for round_ in range(rounds + 1):
        for name, engine in engines.items():
            for group in range(groups):
                first = (round_ * groups + group) * batch
                for number in range(first, first + batch):
                    prompt = prompts[number % len(prompts)]
                    seed = number if workload == "seeded" else None
                    sampling = Sampling(max_tokens=most, temperature=temperature, seed=seed, stop_ids=ends)
                    engine.submit(Request(f"r{number}", (tuple(prompt),), sampling))
                while any(sequence.is_new for sequence in engine.scheduler.running) or len(engine.scheduler.waiting):
                    engine.step()
                before, started = engine.stats.generation_tokens, time.thread_time()
                while engine.busy:
                    engine.step()
                if round_:  # the first warms up, and the governor learns
                    spent_s[name] += time.thread_time() - started
                    tokens[name] += engine.stats.generation_tokens - before
    return {
        name: {
            "tokens_per_s": round(tokens[name] / spent_s[name], 1),
            "accept_length": round(engine.stats.accept_length, 2),
        }
        for name, engine in engines.items()
    }


if __name__ == "__main__":
    main()
