"""Our engine beside the engines people know, on one CPU: same weights, prompts, threads and run.

    python -m benchmarks.engine_cpu [--model models/slipstream-chat …] [--concurrency 1,8,32] [--tokens 64]
        [--seconds 3] [--rounds 3] [--rivals embedded,llama.cpp-q8_0,…] [--keep FILE]

Every rival decodes greedily and past its end token, so that all produce as many tokens; all but `transformers` are
asked through their HTTP server, streamed. They are measured in turns, so that what else the machine does hits all
alike, and only the one being measured runs. How to install them: docs/guides/benchmarks.md. One that is not installed
is named; of those that are, the build is printed. Throughput is the median of the rounds with the slowest and the
quickest beside it. The speed of one stream is also given as a share of the memory's speed, measured before the rounds:
the bytes of all weights that a token reads, times its tokens a second. Last line: JSON.

Threads: every engine computes its model with `--threads` threads. What it has beside them, as an HTTP server, is its
own affair and may use all cores: vLLM and SGLang have further processes, llama.cpp and ours a thread.
With `--keep` the samples of this run join those in FILE, and the tables are over all of them: the long list of rivals
can be measured in pieces.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks.engine_cpu_rivals import bandwidth
from benchmarks.engine_cpu_rivals.embedded import Embedded
from benchmarks.engine_cpu_rivals.figures import Cells, against_best, print_tables, tables
from benchmarks.engine_cpu_rivals.hugging_face import HuggingFace
from benchmarks.engine_cpu_rivals.kept import join_kept
from benchmarks.engine_cpu_rivals.llama_cpp import LlamaCpp
from benchmarks.engine_cpu_rivals.prompts import Prompts
from benchmarks.engine_cpu_rivals.rival import Missing, Rival, Setup
from benchmarks.engine_cpu_rivals.sglang import SGLang
from benchmarks.engine_cpu_rivals.vllm import VLLM

Maker = Callable[[Setup, argparse.Namespace], Rival]
RIVALS: dict[str, Maker] = {
    "embedded": lambda setup, options: Embedded(setup, options.engine),
    "embedded-bf16": lambda setup, options: Embedded(setup, ["quantization=none", *options.engine]),
    "embedded-int8": lambda setup, options: Embedded(setup, ["quantization=int8", *options.engine]),
    "embedded-ngram": lambda setup, options: Embedded(setup, ["speculation.method=ngram", *options.engine]),
    "transformers": lambda setup, options: HuggingFace(setup, options.hf_venv),
    "sglang": lambda setup, options: SGLang(setup, options.sglang_venv, options.sglang_serve),
    "vllm": lambda setup, options: VLLM(setup, options.vllm_venv, options.vllm_flags.split()),
    "llama.cpp-file": lambda setup, options: LlamaCpp(setup, options.llama_venv, "file"),
    "llama.cpp-f16": lambda setup, options: LlamaCpp(setup, options.llama_venv, "f16"),
    "llama.cpp-q8_0": lambda setup, options: LlamaCpp(setup, options.llama_venv, "q8_0"),
}
SHIPPED = Path(__file__).resolve().parents[1] / "models" / "slipstream-chat"
WARM_TOKENS = 8


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="folder or GGUF file; repeatable (default: slipstream-chat)")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=64, help="generated per request")
    parser.add_argument("--prompt-tokens", type=int, default=128, help="mean length of the prompts")
    parser.add_argument("--seconds", type=float, default=3.0, help="per rival, concurrency and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add the samples to those in FILE, and show all")
    parser.add_argument("--engine", action="append", default=[], metavar="FIELD=VALUE", help="setting of our engine")
    parser.add_argument("--vllm-flags", default="--enforce-eager", help="further options of `vllm serve`")
    for option in ("sglang-venv", "sglang-serve", "vllm-venv", "llama-venv", "hf-venv"):
        variable = "SLIPSTREAM_" + option.upper().replace("-", "_")
        parser.add_argument(f"--{option}", default=os.environ.get(variable), help=f"default: {variable}")
    options = parser.parse_args()
    options.model = [Path(folder).resolve() for folder in options.model or [SHIPPED]]
    options.rivals = options.rivals.split(",")
    if unknown := set(options.rivals) - set(RIVALS):
        parser.error(f"--rivals: {', '.join(sorted(unknown))} not known; known: {', '.join(RIVALS)}")
    return options


async def main() -> None:
    """Measure every model and print one JSON line; with several models it holds all of them by name."""
    options = arguments()
    results = {folder.name: await measure(folder, options) for folder in options.model}
    print(msgspec.json.encode(results if len(results) > 1 else next(iter(results.values()))).decode())


async def measure(model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Start all rivals, measure them in turns and print tables; returns the JSON object of one model."""
    levels = [int(level) for level in options.concurrency.split(",")]
    prompts = Prompts(model, options.prompt_tokens)
    missing: dict[str, str] = {}
    builds: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        rivals: dict[str, Rival] = {}
        for name in options.rivals:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="engine-cpu-")))
            context_tokens = prompts.longest_tokens + options.tokens
            setup = Setup(model, options.threads, max(levels), context_tokens, scratch)
            try:
                rivals[name] = RIVALS[name](setup, options)
            except Missing as reason:
                missing[name] = str(reason)
                print(f"MISSING {name}: {reason}", flush=True)
                continue
            stack.callback(stop, rivals, name)
            builds[name] = rivals[name].build
            print(f"build   {name}: {builds[name]}", flush=True)
            # one at a time: their starts would fight for the cores
            try:
                await rivals[name].ready()
            except TimeoutError:
                rivals.pop(name).stop()
                missing[name] = "it did not come up in time"
                print(f"MISSING {name}: {missing[name]}", flush=True)
                continue
            await warm(rivals[name], prompts, levels)
            print(f"ready   {name}: {(await rivals[name].text(prompts.familiar, 12))!r}", flush=True)
            rivals[name].pause()
        bytes_per_s = bandwidth.measured_bytes_per_s(options.threads)
        cells = await rounds(model.name, rivals, prompts, levels, options)
    if options.keep:
        cells = join_kept(options.keep, model.name, {})
        missing = {name: reason for name, reason in missing.items() if name not in cells}
    found = tables(cells)
    print(
        f"\n{model.name}, {options.tokens} tokens after about {options.prompt_tokens}, {options.threads} thread(s) for "
        f"each model, {os.cpu_count()} cores for all else"
    )
    print_tables(found)
    shares = bandwidth.shares(cells, model, bytes_per_s)
    print(f"\nshare of {bytes_per_s / 1e9:.1f} GB/s at one stream: {shares}")
    best = against_best(found, "embedded")
    print("\nembedded: " + ", ".join(f"x{level}: {text}" for level, text in best.items()))
    return {
        "model": model.name,
        "builds": builds,
        **found,
        "bandwidth_bytes_per_s": round(bytes_per_s),
        "bandwidth_share": shares,
        "embedded_against_best": best,
        "missing": missing,
    }


def stop(rivals: dict[str, Rival], name: str) -> None:
    """Stop the rival, unless its start failed and it was stopped already."""
    if name in rivals:
        rivals[name].stop()


async def warm(rival: Rival, prompts: Prompts, levels: list[int]) -> None:
    """Run every batch size once, unmeasured."""
    for level in levels:
        await rival.burst(prompts.sequence(-level), level, WARM_TOKENS, 0.001)


async def rounds(
    model: str, rivals: dict[str, Rival], prompts: Prompts, levels: list[int], options: argparse.Namespace
) -> Cells:
    """Measure: in every round each rival at each concurrency, in a different order each time."""
    cells: Cells = {name: {level: [] for level in levels} for name in rivals}
    names = list(rivals)
    for number in range(options.rounds):
        load = os.getloadavg()[0]
        for level in levels:
            for name in names:
                rival = rivals[name]
                rival.resume()
                # unmeasured: the rival has just been resumed
                await rival.burst(prompts.sequence(number, -level), 1, WARM_TOKENS, 0.001)
                sequence = prompts.sequence(number, level)
                cells[name][level].append(await rival.burst(sequence, level, options.tokens, options.seconds))
                rival.pause()
        names = names[1:] + names[:1]
        if options.keep:
            newest = {name: {level: samples[-1:] for level, samples in row.items()} for name, row in cells.items()}
            join_kept(options.keep, model, newest)
        print(f"round {number + 1} of {options.rounds}, load average before it {load:.1f}", flush=True)
    return cells


if __name__ == "__main__":
    uvloop.run(main())
