"""Which `fim.min_confidence` a code model needs: what of its completions is shown, and how much of that is right.

    python -m benchmarks.fill_confidence [--model models/slipstream-code] [--lines 1200] [--rows work/confidence.jsonl]

Lines are drawn as `tools/training/line_scores.py` does from files that training did not use: the modules of this
repository (`own`), and installed packages of which the manifest of the training has no file (`PACKAGES`; a file of the
same content is left out too). The prompt is what the gateway sends (`gateway/wire/fill/layout.py`, with token healing),
the engine the one that serves, and the model writes greedily up to the line's end. Confidence is the gateway's
(`gateway/wire/fill/confidence.py`).

    shown   share of the completions that have any text whose confidence reaches the threshold
    exact   share of the shown that are the rest of the line, trailing spaces apart
    kept    share of all exact completions that are shown

The threshold is chosen on one half of the files: the lowest of the grid from which on the shown completions are exact
as often as `--exact` asks. The figures of the other half say what it does. Without such a threshold none is chosen.
`--rows` keeps every line's result, and a run goes on from what the file has. Last line: JSON.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from benchmarks.fill_layouts import Line, completed, own_files, prompt_of
from benchmarks.needs import missing
from contracts.desired_state import Model
from contracts.generation import Tier
from engines.drivers.embedded import EmbeddedDriver
from engines.embedded.engine import Engine
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.fill.confidence import Confidence
from gateway.wire.gap import Gap
from gateway.wire.prepared import Target
from tools.training.greedy import engine_of
from tools.training.line_scores import Cursor, draw

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / "tools/training/data/slipstream-code.tsv.gz"
PACKAGES = ("alembic", "celery", "hypothesis", "kombu", "litestar", "pytest", "redis", "SQLAlchemy")
MIN_LINES, MAX_BYTES = 40, 250_000
"""The size of a file: files of packages outside these bounds are left out."""
BLOCK = 8
GRID = tuple(round(0.05 * step, 2) for step in range(20))
EXACT = 0.5
"""The least share of shown completions that are exact: a wrong one costs its reader about what a right one saves."""


class Row(msgspec.Struct, frozen=True):
    """One line's completion."""

    number: int
    group: str
    """The file that the line is from."""
    exact: bool
    characters: int
    """The length of the completion."""
    confidence: float


class Figures(NamedTuple):
    """The shares at one threshold; the module's docstring defines them."""

    threshold: float
    shown: float
    exact: float
    kept: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=ROOT / "models" / "slipstream-code", type=Path)
    parser.add_argument("--lines", default=1200, type=int, help="of each part")
    parser.add_argument("--context", default=1024, type=int, help="tokens of prompt and answer")
    parser.add_argument("--exact", default=EXACT, type=float, help="least share of exact completions among the shown")
    parser.add_argument("--seed", default=33, type=int)
    parser.add_argument("--rows", type=Path, help="JSON lines to add to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = draw_lines(arguments.lines, arguments.seed)
    asker = Asker(arguments.model, arguments.context)
    rows = read(arguments.rows)
    for start in range(len(rows), len(lines), BLOCK):
        new = asker.ask(lines[start : start + BLOCK])
        rows += new
        if arguments.rows is not None:
            with arguments.rows.open("ab") as file:
                file.writelines(msgspec.json.encode(row) + b"\n" for row in new)
    report(rows, arguments.exact)


def report(rows: Sequence[Row], exact: float) -> None:
    """Print the tables and the line of JSON."""
    chosen_on, checked_on = halves(rows)
    threshold = choose(chosen_on, exact)
    print(table(chosen_on, checked_on))
    found = None if threshold is None else figures(checked_on, threshold)
    print(
        json.dumps(
            {
                "lines": len(rows),
                "files": len({row.group for row in rows}),
                "min_confidence": threshold,
                "shown": None if found is None else round(found.shown, 3),
                "exact_of_shown": None if found is None else round(found.exact, 3),
                "exact_of_all": round(figures(checked_on, 0.0).exact, 3),
                "kept_of_exact": None if found is None else round(found.kept, 3),
            }
        )
    )


def draw_lines(count: int, seed: int) -> list[Line]:
    """Draw `count` lines of each part, shuffled together, so that a run that is stopped early has some of both."""
    found: list[tuple[str, Cursor]] = []
    for texts in (own_files(), package_files()):
        names = list(texts)
        found += [(names[cursor.text], cursor) for cursor in draw(list(texts.values()), count, seed, whole=True)]
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed)).tolist()
    return [Line(number, found[at][0], found[at][1], ()) for number, at in enumerate(order)]


def package_files() -> dict[str, str]:
    """The modules of installed packages that training did not use, by path."""
    with gzip.open(MANIFEST, "rt") as file:
        entries = [line.rstrip("\n").split("\t") for line in file]
    hashes = {entry[-1] for entry in entries}
    origins = {entry[0].partition("/")[0].rpartition("-")[0].lower().replace("_", "-") for entry in entries}
    texts: dict[str, str] = {}
    for package in PACKAGES:
        if package.lower() in origins:
            missing(f"a package that training did not use: it has used {package}")
        try:
            distribution = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            missing(f"the package {package} (pip install {package})")
        for name in distribution.files or ():
            path = Path(str(distribution.locate_file(name)))
            if path.suffix != ".py" or not path.is_file() or path.stat().st_size > MAX_BYTES:
                continue
            content = path.read_bytes()
            if content.count(b"\n") >= MIN_LINES and hashlib.sha256(content).hexdigest() not in hashes:
                texts[f"{package}/{name}"] = content.decode("utf-8", "replace")
    return texts


class Asker:
    """One engine, with the prompts and the confidence of the gateway."""

    def __init__(self, folder: Path, context_tokens: int) -> None:
        self._tokenizer = Tokenizer.load(folder)
        self._engine: Engine = engine_of(folder, self._tokenizer)
        model = Model(name="m", tier=Tier.AUTOCOMPLETE, pool="p", context_tokens=context_tokens)
        self._target = Target(model, EmbeddedDriver.capabilities, OffLoopTokenizer(self._tokenizer))

    def ask(self, lines: Sequence[Line]) -> list[Row]:
        """Complete each line, greedily, to its end."""
        gaps = (Gap(line.cursor.before, line.cursor.after, (), line.file) for line in lines)
        prompts = [prompt_of(gap, self._target) for gap in gaps]
        texts = [""] * len(lines)
        judged = [Confidence(0.0, prompt.begins_with) for prompt in prompts]
        for delta in completed(self._engine, self._tokenizer, prompts, logprobs=0):
            number = int(delta.rid)
            texts[number] += delta.text
            pairs = [(self._tokenizer.token_text(each.id), each.logprob) for each in delta.logprobs]
            judged[number].add({"tokens": [text for text, _ in pairs], "token_logprobs": [nats for _, nats in pairs]})
        return [
            Row(
                line.number,
                line.file,
                text.rstrip() == line.cursor.rest.rstrip(),
                len(text),
                1.0 if (mean := confidence.mean(len(text))) is None else round(mean, 4),
            )
            for line, text, confidence in zip(lines, texts, judged, strict=True)
        ]


def read(path: Path | None) -> list[Row]:
    """The rows that an earlier run has written; none without a file."""
    if path is None or not path.exists():
        return []
    return [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]


def halves(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Split the lines by file into two halves, which have no file in common."""
    parts: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        parts[hashlib.sha256(row.group.encode()).digest()[0] % 2].append(row)
    return parts


def figures(rows: Sequence[Row], threshold: float) -> Figures:
    """The figures of these lines at one threshold."""
    offered = [row for row in rows if row.characters]
    shown = [row for row in offered if row.confidence >= threshold]
    right = sum(row.exact for row in shown)
    return Figures(
        threshold,
        len(shown) / max(1, len(offered)),
        right / max(1, len(shown)),
        right / max(1, sum(row.exact for row in offered)),
    )


def choose(rows: Sequence[Row], exact: float) -> float | None:
    """The lowest threshold of the grid from which on that share of the shown is exact; None if no threshold is."""
    chosen = None
    for threshold in reversed(GRID):
        found = figures(rows, threshold)
        if found.shown and found.exact < exact:
            break
        chosen = threshold if found.shown else chosen
    return chosen


def table(chosen_on: Sequence[Row], checked_on: Sequence[Row]) -> str:
    """The figures of both halves as a Markdown table, in percent."""
    lines = [
        f"| threshold | shown | exact of shown | kept of exact | the same, other files ({len(checked_on)} lines) |",
        "|---|---|---|---|---|",
    ]
    for threshold in GRID:
        one, other = figures(chosen_on, threshold), figures(checked_on, threshold)
        cells = (f"{100 * each:.1f}" for each in one[1:])
        checked = " / ".join(f"{100 * each:.1f}" for each in other[1:])
        lines.append(f"| {threshold:.2f} | {' | '.join(cells)} | {checked} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
