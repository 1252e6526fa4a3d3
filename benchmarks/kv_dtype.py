"""What keys and values in 8 bits hold, cost and answer: `kv.dtype` auto, fp8 and int8, side by side.

    python -m benchmarks.kv_dtype [--model models/slipstream-chat] [--items 100] [--lines 800]

No HTTP: one process, an engine per format over the same weights. Three figures: tokens that the default budget holds;
right answers, to the same held-out items of the eval slices (a model that takes no conversations: the rest of lines of
this repository's modules, asked as the gateway asks), with the bounds that the eval gate would put on the difference;
and CPU time of the engine's thread per token read and generated, in turns, over contexts of 512 tokens, by batch.
Answers are compared with auto under the same operations (`kernels = "torch"`), so that nothing but the format differs;
times also with auto as it comes, by our own kernels. Last line: JSON by model.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig, KVConfig, SchedulerConfig
from engines.embedded.engine import Engine
from engines.embedded.request import Request, Sampling
from engines.tokenizer.tokenizer import Tokenizer
from evals.gate import PairedItem, SliceRule, SliceVerdict, judge
from evals.slices.registry import SLICES
from evals.slices.split import Split
from tools.training.line_scores import MAX_TOKENS, draw

ROOT = Path(__file__).parents[1]
CONTEXT_TOKENS, READ_TOKENS, OUTPUT_TOKENS = 4608, 512, 64
BATCHES = (1, 8)
BASELINE = "auto, torch"
FORMATS = ("fp8", "int8")


class Question(NamedTuple):
    """One item, and the function that scores an answer to it."""

    slice: str
    cluster: str
    prompt: list[int]
    sampling: Sampling
    score: Callable[[str], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["models/slipstream-chat", "models/slipstream-code"])
    parser.add_argument("--items", type=int, default=100, help="of each slice")
    parser.add_argument("--lines", type=int, default=800, help="that a model without conversations completes")
    parser.add_argument("--rounds", type=int, default=3, help="of the times; 0: none are taken")
    arguments = parser.parse_args()
    figures = {}
    for model in arguments.model:
        tokenizer = Tokenizer.load(model)
        engines = {name: _engine(model, name, tokenizer) for name in ("auto", BASELINE, *FORMATS)}
        chat = tokenizer.has_chat_template
        questions = of_slices(tokenizer, arguments.items) if chat else of_lines(tokenizer, arguments.lines)
        figures[Path(model).name] = {
            "tokens_held_ratio": {name: round(held(engines[name]) / held(engines["auto"]), 3) for name in FORMATS},
            "slices": compare(engines, questions),
            "time_ratio": times(engines, arguments.rounds) if arguments.rounds else {},
        }
    print(json.dumps(figures))


def held(engine: Engine) -> int:
    """The number of tokens that its pages hold."""
    return engine.store.total_tokens


def of_slices(tokenizer: Tokenizer, items: int) -> list[Question]:
    """Held-out items of every slice that fits the context."""
    questions = []
    for source in SLICES:
        for seed in range(items):
            item = source.item(seed, Split.HELD_OUT)
            prompt = list(tokenizer.chat_ids(msgspec.to_builtins(item.messages)))
            if len(prompt) + item.max_tokens <= CONTEXT_TOKENS:
                sampling = Sampling(max_tokens=item.max_tokens, temperature=0.0, stop_ids=frozenset(tokenizer.end_ids))
                questions.append(Question(source.name, item.cluster, prompt, sampling, item.score))
    return questions


def of_lines(tokenizer: Tokenizer, lines: int) -> list[Question]:
    """Cursors in lines of this repository; an item's cluster is its file."""
    files = sorted(file for folder in ("engines", "gateway", "router") for file in (ROOT / folder).rglob("*.py"))
    sampling = Sampling(MAX_TOKENS, 0.0, stop=("\n",), stop_ids=frozenset(tokenizer.end_ids))
    return [
        Question(
            "lines",
            str(files[cursor.text].relative_to(ROOT)),
            tokenizer.fill_ids(cursor.before, cursor.after),
            sampling,
            functools.partial(_exact, cursor.rest),
        )
        for cursor in draw([file.read_text() for file in files], lines, seed=11)
    ]


def compare(engines: dict[str, Engine], questions: Sequence[Question]) -> dict[str, dict[str, Any]]:
    """By slice, the share that auto answers right, and the difference of each format with its bounds."""
    scores = {name: _scores(engines[name], questions) for name in (BASELINE, *FORMATS)}
    figures: dict[str, dict[str, Any]] = {}
    for name in FORMATS:
        paired: dict[str, list[PairedItem]] = {}
        for question, before, after in zip(questions, scores[BASELINE], scores[name], strict=True):
            item = PairedItem(question.slice, question.cluster, before, after)
            paired.setdefault(question.slice, []).append(item)
        # one look, at all items
        rules = {key: SliceRule(first_look=len(items), budget=len(items)) for key, items in paired.items()}
        for verdict in judge(paired, rules).slices:
            before = sum(item.baseline for item in paired[verdict.slice]) / verdict.n
            row = figures.setdefault(verdict.slice, {"items": verdict.n, "auto": round(before, 4)})
            row[name] = _difference(verdict)
            print(f"{verdict.slice:15} {name:5} {verdict.n} items, auto {before:.3f}, {row[name]}", flush=True)
    return figures


def times(engines: dict[str, Engine], rounds: int) -> dict[str, dict[str, float]]:
    """CPU time per token of each format, over that of both ways of auto."""
    spent: dict[tuple[str, str], float] = {}
    source = random.Random(5)
    for round_ in range(rounds + 1):
        for name, engine in engines.items():
            for batch in BATCHES:
                prompts = [[source.randrange(300, 2000) for _ in range(READ_TOKENS)] for _ in range(batch)]
                read_s, generated_s = _timed(engine, prompts)
                if round_:  # the first warms up
                    for what, took in ((f"read {batch}", read_s), (f"generated {batch}", generated_s)):
                        spent[name, what] = spent.get((name, what), 0.0) + took
    kinds = sorted({what for _, what in spent})
    for what in kinds:
        print(what, *(f"{name}: {spent[name, what] / rounds:.3f} s" for name in engines), sep="  ", flush=True)
    return {
        f"{name} / {base}": {what: round(spent[name, what] / spent[base, what], 3) for what in kinds}
        for name in FORMATS
        for base in ("auto", BASELINE)
    }


def _timed(engine: Engine, prompts: list[list[int]]) -> tuple[float, float]:
    for number, prompt in enumerate(prompts):
        engine.submit(Request(f"t{number}", (tuple(prompt),), Sampling(OUTPUT_TOKENS, 0.0)))
    begun = time.thread_time()
    while any(sequence.is_new for sequence in engine.scheduler.running) or len(engine.scheduler.waiting):
        engine.step()
    read = time.thread_time()
    while engine.busy:
        engine.step()
    return read - begun, time.thread_time() - read


def _scores(engine: Engine, questions: Sequence[Question]) -> list[float]:
    texts = [""] * len(questions)
    for number, question in enumerate(questions):
        engine.submit(Request(str(number), (tuple(question.prompt),), question.sampling))
    while engine.busy:
        for delta in engine.step():
            texts[int(delta.rid)] += delta.text
    return [question.score(text) for question, text in zip(questions, texts, strict=True)]


def _engine(model: str, name: str, tokenizer: Tokenizer) -> Engine:
    kv = msgspec.convert({"dtype": name if name in FORMATS else "auto"}, KVConfig)
    scheduler = SchedulerConfig(max_batch_tokens=2048)
    config = EngineConfig(model=model, kernels="auto" if name == "auto" else "torch", kv=kv, scheduler=scheduler)
    return build_engine(config, CONTEXT_TOKENS, tokenizer)


def _exact(rest: str, text: str) -> float:
    return float(text.rstrip() == rest.rstrip())


def _difference(verdict: SliceVerdict) -> dict[str, float]:
    return {
        "difference": round(verdict.difference, 4),
        "lower": round(verdict.lower, 4),
        "upper": round(verdict.upper, 4),
        "changed": round(verdict.flip_share, 4),
    }


if __name__ == "__main__":
    main()
