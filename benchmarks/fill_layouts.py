"""Which way of asking a model to fill a gap completes lines best: layouts, token healing, windows.

    python -m benchmarks.fill_layouts --corpus work/corpus [--lines 2000] [--long-lines 500] [--rows work/rows.jsonl]

Lines are drawn as `tools/training/line_scores.py` does, from three parts: `held` and `new` of the corpus (`python -m
tools.training corpus`), and `own`, the modules of this repository, which no model was trained on. The prompt is what
the gateway would send (`gateway/wire/fill/layout.py`), the engine the one that serves, and the model writes greedily up
to the line's end.

    typed       the half-typed line after the middle token: the layout of the shipped model
    spm         all that precedes the cursor before the middle token, suffix first, as in two of five gaps of training
    psm         the same, prefix first: the plain layout that engines render for `suffix`, which training never showed
    …+healing   the same, cut before the word that the cursor is in (`engines/tokenizer/healing.py`)
    …/8192      the same with the whole file, or all of it that the model's context has room for
    …+first     the same with pieces of two other files of the line's folder as comments before everything
    …+head      the same pieces at the head of the prefix, behind the suffix

A completion is exact when it is the rest of the line, trailing spaces apart; similarity is 1 less the edit distance
over the longer one's length. Differences are paired, with one-sided 95 % bounds from the sums of files. `half-typed`:
lines whose cursor has a letter, digit or underscore on both sides. `--rows` keeps every line's results; a run goes on
from what the file has. Last line: JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from benchmarks.needs import missing
from contracts.desired_state import Model
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import TextPrompt, Tier
from engines.drivers.embedded import EmbeddedDriver
from engines.embedded.engine import Engine
from engines.embedded.output import Delta
from engines.embedded.request import Request, Sampling
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.fill.layout import lay_out
from gateway.wire.gap import Gap, Snippet
from gateway.wire.prepared import Target
from tools.training.code_files import load
from tools.training.greedy import engine_of
from tools.training.line_scores import MAX_TOKENS, Cursor, draw
from tools.training.paired import Difference, difference, edit_similarity

ROOT = Path(__file__).parents[1]
OWN = (
    "contracts", "control", "engines", "evals", "gateway", "infra", "router", "slipstream", "speculative", "storage",
    "telemetry", "tools",
)  # fmt: skip
MIN_LINES = 40
"""The fewest lines of a module of `own`."""
BLOCK = 8
"""The lines that every way completes before the next lines start: a run that is stopped has the same lines for all
ways, and common prefixes of prompts are still cached."""
SNIPPETS, SNIPPET_LINES = 2, 8
"""The number of pieces of other files, and the length of each."""
MARGIN = 0.01
"""The difference by which a way may be worse and still count as no worse."""


class Way(NamedTuple):
    """A layout of a gap, with its options."""

    order: str
    line_after: bool
    healing: bool = False
    context_tokens: int | None = None
    """None for the command line's `--context`."""
    files: str = ""
    """The position of the pieces of other files as comments: `first` or `head`; empty for none."""


TYPED, SPM, PSM = Way("spm", True), Way("spm", False), Way("psm", False)
WAYS = {
    "typed": TYPED,
    "typed+healing": TYPED._replace(healing=True),
    "spm": SPM,
    "spm+healing": SPM._replace(healing=True),
    "psm": PSM,
    "psm+healing": PSM._replace(healing=True),
    "typed+first": TYPED._replace(files="first"),
    "typed+head": TYPED._replace(files="head"),
}
PLAIN = ("psm", "spm")
"""The ways that `typed` must not be worse than."""
LONG_WAYS = {"typed/8192": TYPED._replace(context_tokens=8192), "spm/8192": SPM._replace(context_tokens=8192)}


class Row(msgspec.Struct, frozen=True):
    """One line's results, by way."""

    number: int
    group: str
    """The file that the line is from."""
    kind: str
    exact: dict[str, bool]
    similarity: dict[str, float]
    tokens: dict[str, int]
    """The length of the prompt."""


Scores = Callable[[Row], Mapping[str, float]]
"""One of a row's measures, by way."""


class Line(NamedTuple):
    """A line to complete, with its cursor."""

    number: int
    file: str
    cursor: Cursor
    snippets: tuple[Snippet, ...]
    """Pieces of other files, where possible of its folder."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-code", type=Path)
    parser.add_argument("--corpus", required=True, type=Path)
    parser.add_argument("--lines", default=2000, type=int, help="of each part")
    parser.add_argument("--long-lines", default=0, type=int, help="of them, those asked with the whole file too")
    parser.add_argument("--context", default=1024, type=int, help="tokens of prompt and answer")
    parser.add_argument("--ways", nargs="+", default=[*WAYS], choices=[*WAYS])
    parser.add_argument("--seed", default=15, type=int)
    parser.add_argument("--rows", type=Path, help="JSON lines to add to")
    arguments = parser.parse_args()
    if not arguments.corpus.is_dir():
        missing(f"the corpus {arguments.corpus} (python -m tools.training corpus makes it)")
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(arguments.model)
    asker = Asker(arguments.model, tokenizer, arguments.context)
    lines = draw_lines(arguments.corpus, arguments.lines, arguments.seed)
    rows = read(arguments.rows)
    for start in range(len(rows), len(lines), BLOCK):
        block = lines[start : start + BLOCK]
        ways = {name: WAYS[name] for name in arguments.ways} | (LONG_WAYS if start < arguments.long_lines else {})
        new = measure(asker, block, ways)
        rows += new
        if arguments.rows is not None:
            with arguments.rows.open("ab") as file:
                file.writelines(msgspec.json.encode(row) + b"\n" for row in new)
    figures = compare(rows)
    print(table(figures))
    print(json.dumps(figures))


def draw_lines(corpus: Path, count: int, seed: int) -> list[Line]:
    """Draw `count` lines of each part, shuffled together, so that a run that is stopped early has some of each."""
    files = load(corpus)
    parts = {part: files.part(part) for part in ("held", "new")} | {"own": own_files()}
    found: list[tuple[str, Cursor, tuple[Snippet, ...]]] = []
    for texts in parts.values():
        names = list(texts)
        for cursor in draw(list(texts.values()), count, seed, whole=True):
            name = names[cursor.text]
            found.append((name, cursor, snippets_of(name, texts, random.Random(f"{seed} {name} {len(cursor.before)}"))))
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed)).tolist()
    return [Line(number, *found[at]) for number, at in enumerate(order)]


def snippets_of(name: str, texts: Mapping[str, str], rng: random.Random) -> tuple[Snippet, ...]:
    """Pieces of other files of the same folder, or of any folder if that has too few."""
    folder = name.rpartition("/")[0]
    others = [other for other in texts if other != name]
    near = [other for other in others if other.rpartition("/")[0] == folder]
    taken = rng.sample(near, SNIPPETS) if len(near) >= SNIPPETS else rng.sample(others, SNIPPETS)
    pieces = []
    for other in taken:
        lines = texts[other].splitlines()
        start = rng.randrange(max(1, len(lines) - SNIPPET_LINES))
        pieces.append(Snippet(other, "\n".join(lines[start : start + SNIPPET_LINES])))
    return tuple(pieces)


def own_files() -> dict[str, str]:
    """The modules of this repository, by path."""
    paths = (path for folder in OWN for path in sorted((ROOT / folder).rglob("*.py")))
    texts = {f"own/{path.relative_to(ROOT).as_posix()}": path.read_text() for path in paths}
    return {name: text for name, text in texts.items() if text.count("\n") >= MIN_LINES}


def prompt_of(gap: Gap, target: Target) -> TextPrompt:
    """The prompt that the gateway would send for a gap."""
    laid_out = asyncio.run(lay_out(gap, MAX_TOKENS, MAX_TOKENS, target, ""))
    assert isinstance(laid_out.counted.prompt, TextPrompt)
    return laid_out.counted.prompt


def completed(
    engine: Engine, tokenizer: Tokenizer, prompts: Sequence[TextPrompt], logprobs: int | None = None
) -> Iterator[Delta]:
    """Complete greedily up to the end of a line; a delta's `rid` is its prompt's number."""
    sampling = Sampling(
        max_tokens=MAX_TOKENS,
        temperature=0.0,
        stop=("\n",),
        stop_ids=frozenset(tokenizer.end_ids),
        logprobs=logprobs,
    )
    for number, prompt in enumerate(prompts):
        opening = tokenizer.opening(prompt.begins_with) if prompt.begins_with else None
        ids = tuple(id_ for id_ in prompt.prompts[0] if isinstance(id_, int))
        engine.submit(Request(str(number), (ids,), sampling, opening=opening))
    while engine.busy:
        yield from engine.step()


class Asker:
    """One engine that completes lines in any way."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, context_tokens: int) -> None:
        """context_tokens: the context of ways that do not set their own."""
        self._engine: Engine = engine_of(folder, tokenizer)
        self._tokenizer = tokenizer
        self._context_tokens = context_tokens
        self._targets: dict[Way, Target] = {}

    def prompt(self, way: Way, line: Line) -> TextPrompt:
        """The prompt that the gateway would send."""
        gap = Gap(line.cursor.before, line.cursor.after, line.snippets if way.files else (), line.file)
        return prompt_of(gap, self._target(way))

    def complete(self, prompts: Sequence[TextPrompt]) -> list[str]:
        """Complete each prompt greedily, up to the end of a line."""
        texts = [""] * len(prompts)
        for delta in completed(self._engine, self._tokenizer, prompts):
            texts[int(delta.rid)] += delta.text
        return texts

    def _target(self, way: Way) -> Target:
        if way not in self._targets:
            tokenizer = copy.copy(self._tokenizer)
            assert tokenizer.fill is not None
            tokenizer.fill = msgspec.structs.replace(
                tokenizer.fill, order=way.order, line_after=way.line_after, comments_first=way.files == "first"
            )
            model = Model(
                name="m",
                tier=Tier.AUTOCOMPLETE,
                pool="p",
                context_tokens=way.context_tokens or self._context_tokens,
                fim=FillInTheMiddle(healing=way.healing),
            )
            self._targets[way] = Target(model, EmbeddedDriver.capabilities, OffLoopTokenizer(tokenizer))
        return self._targets[way]


def measure(asker: Asker, lines: Sequence[Line], ways: dict[str, Way]) -> list[Row]:
    """Complete the lines in every way; returns their rows."""
    prompts = {name: [asker.prompt(way, line) for line in lines] for name, way in ways.items()}
    texts = {name: [text.rstrip() for text in asker.complete(of_way)] for name, of_way in prompts.items()}
    wanted = [line.cursor.rest.rstrip() for line in lines]
    return [
        Row(
            line.number,
            line.file,
            kind_of(line.cursor),
            {name: texts[name][at] == wanted[at] for name in ways},
            {name: round(edit_similarity(texts[name][at], wanted[at]), 4) for name in ways},
            {name: len(prompts[name][at].prompts[0]) for name in ways},
        )
        for at, line in enumerate(lines)
    ]


def kind_of(cursor: Cursor) -> str:
    """The cursor's position: `half-typed` in a word, `word` at its end, after a `space` or a `mark`, or at the `start`
    of the line's content."""
    before, after = cursor.before[-1:], cursor.rest[0]
    if not cursor.before[cursor.before.rfind("\n") + 1 :].strip():
        return "start"
    if _is_word(before):
        return "half-typed" if _is_word(after) else "word"
    return "space" if before.isspace() else "mark"


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def read(path: Path | None) -> list[Row]:
    """The rows that an earlier run has written; none without a file."""
    if path is None or not path.exists():
        return []
    return [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]


def compare(rows: Sequence[Row]) -> dict[str, object]:
    """Compute all figures of the last line of JSON."""
    kinds: dict[str, Callable[[Row], bool]] = {
        "all": lambda row: True,
        **{kind: lambda row, kind=kind: row.kind == kind for kind in ("half-typed", "word", "space", "mark", "start")},  # type: ignore[misc]
        **{part: lambda row, part=part: part_of(row) == part for part in ("held", "new", "own")},  # type: ignore[misc]
    }
    pairs = [
        ("typed", "psm"),
        ("typed", "spm"),
        *((f"{name}+healing", name) for name in ("typed", "spm", "psm")),
        ("typed+healing", "psm"),
        ("typed", "typed/8192"),
        ("spm", "spm/8192"),
        ("typed+first", "typed+head"),
        ("typed+first", "typed"),
        ("typed+head", "typed"),
    ]
    half_typed = [row for row in rows if row.kind == "half-typed"]
    plain = [way for way in PLAIN if all(way in row.exact for row in rows)]
    shares: dict[str, object] = {}
    differences: dict[str, object] = {}
    for kind, belongs in kinds.items():
        own = [row for row in rows if belongs(row)]
        shares[kind] = {"lines": len(own), **{way: _scores(own, way) for way in (*WAYS, *LONG_WAYS)}}
        for one, other in pairs:
            both = [row for row in own if one in row.exact and other in row.exact]
            if len({row.group for row in both}) >= 2:
                differences[f"{one} - {other}, {kind}"] = {
                    "exact": _told(_difference(both, one, other, lambda row: row.exact)),
                    "similarity": _told(_difference(both, one, other, lambda row: row.similarity)),
                }
    return {
        "lines": len(rows),
        "files": len({row.group for row in rows}),
        "scores": shares,
        "differences": differences,
        "non_inferior": all(no_worse(rows, "typed", other) for other in plain) if plain else None,
        "better_at_half_typed_words": all(better(half_typed, "typed", other) for other in plain) if plain else None,
    }


def part_of(row: Row) -> str:
    """`own`, or `new` for a file of a later library than the base one."""
    return "own" if row.group.startswith("own/") else "held" if row.group.startswith("stdlib-3.11/") else "new"


def no_worse(rows: Sequence[Row], one: str, other: str) -> bool:
    """Whether `one` is worse by less than the margin in both measures, at one-sided 95 %."""
    kinds: list[Scores] = [lambda row: row.exact, lambda row: row.similarity]
    return all(_difference(rows, one, other, scores).lower > -MARGIN for scores in kinds)


def better(rows: Sequence[Row], one: str, other: str) -> bool:
    """Whether `one` has more exact lines, at one-sided 95 %."""
    return _difference(rows, one, other, lambda row: row.exact).lower > 0


def _difference(rows: Sequence[Row], one: str, other: str, scores: Scores) -> Difference:
    ones, others = ([float(scores(row)[way]) for row in rows] for way in (one, other))
    return difference(ones, others, [row.group for row in rows])


def _told(found: Difference) -> dict[str, float]:
    return {"mean": round(found.mean, 4), "lower": round(found.lower, 4), "upper": round(found.upper, 4)}


def _scores(rows: Sequence[Row], way: str) -> dict[str, float]:
    measured = [row for row in rows if way in row.exact]
    if not measured:
        return {}
    return {
        "lines": len(measured),
        "exact": round(sum(row.exact[way] for row in measured) / len(measured), 4),
        "similarity": round(sum(row.similarity[way] for row in measured) / len(measured), 4),
        "prompt_tokens": round(sum(row.tokens[way] for row in measured) / len(measured), 1),
    }


def table(figures: dict[str, object]) -> str:
    """The figures as Markdown tables."""
    scores, differences = figures["scores"], figures["differences"]
    assert isinstance(scores, dict) and isinstance(differences, dict)  # noqa: PT018
    lines = ["| lines | " + " | ".join((*WAYS, *LONG_WAYS)) + " |", "|---" * (len(WAYS) + len(LONG_WAYS) + 1) + "|"]
    for kind, row in scores.items():
        cells = (f"{row[w]['exact']:.3f} / {row[w]['similarity']:.3f}" if row[w] else "" for w in (*WAYS, *LONG_WAYS))
        lines.append(f"| {kind} ({row['lines']}) | " + " | ".join(cells) + " |")
    lines += ["", "| difference | exact, points | similarity, points |", "|---|---|---|"]
    for name, found in differences.items():
        cells = (
            f"{100 * found[m]['mean']:+.2f} ({100 * found[m]['lower']:+.2f} to {100 * found[m]['upper']:+.2f})"
            for m in ("exact", "similarity")
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
