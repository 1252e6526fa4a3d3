"""`python -m tools.training evaluate`: the code model's figures on files that it was not trained on."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import click
import msgspec
import torch
from tokenizers import Tokenizer

from tools.training import acceptance, export
from tools.training.code_files import Corpus, load
from tools.training.line_scores import WAYS, draw, score_lines
from tools.training.text_scores import score_positions, score_texts

EDGES = (0, 512, 1024, 2048, 4096, 6144, 8192)
PARTS = {
    "held": "groups of near-copies held out of the base library",
    "new": "files that are new in a later library",
}


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), default="models/slipstream-code")
@click.option("--corpus", type=click.Path(path_type=Path), required=True, help="Folder made by the corpus command.")
@click.option("--head", type=click.Path(path_type=Path), help="Default: the folder `draft` in the model's, if any.")
@click.option("--lines", default=300, show_default=True, help="Lines completed, by part.")
@click.option("--sequences", default=24, show_default=True, help="Of 8,192 tokens, for the loss by position; 0: none.")
@click.option("--prompts", default=24, show_default=True, help="Continued for the acceptance lengths; 0: none.")
@click.option("--seed", default=5, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="JSON file to write.")
def command(
    model: Path,
    corpus: Path,
    head: Path | None,
    lines: int,
    sequences: int,
    prompts: int,
    seed: int,
    out: Path | None,
) -> None:
    """Measure the code model."""
    torch.set_num_threads(1)
    files = load(corpus)
    own = model / "draft"
    figures = evaluate(model, files, head or (own if own.exists() else None), lines, sequences, prompts, seed)
    click.echo(table(figures))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")
    click.echo(msgspec.json.encode(figures).decode())


def evaluate(
    folder: Path, corpus: Corpus, head: Path | None, lines: int, sequences: int, prompts: int, seed: int
) -> dict[str, Any]:
    """All figures, with the number of items of each."""
    model = export.load(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    parts = {part: list(corpus.part(part).values()) for part in PARTS}
    figures: dict[str, Any] = {"model": folder.name}
    for part, texts in parts.items():
        row: dict[str, Any] = {"files": len(texts), "bytes": sum(len(text.encode()) for text in texts)}
        for context in (512, 2048):
            scores = score_texts(model, tokenizer, texts, context)
            row[f"bits per byte, context {context}"] = round(scores.bits_per_byte, 4)
            row[f"top-1, context {context}"] = round(scores.top1, 4)
            row["tokens"] = scores.tokens
        cursors = draw(texts, lines, seed)
        row["lines"] = len(cursors)
        row["long lines"] = sum(len(cursor.rest) >= 8 for cursor in cursors)
        for way, line in score_lines(folder, model, cursors).items():
            row[way] = {
                "exact": round(line.exact, 4),
                "exact, 8 or more characters wanted": round(line.exact_long, 4),
                "bits per byte": round(line.bits_per_byte, 4),
            }
        figures[part] = row
    texts = [text for part in parts.values() for text in part]
    if sequences:
        losses = score_positions(model, tokenizer, texts, EDGES, sequences)
        figures["loss by position"] = {
            f"{low}-{high}": round(loss, 3) for low, high, loss in zip(EDGES, EDGES[1:], losses, strict=False)
        }
        figures["sequences"] = sequences
    if prompts:
        drawn = stretches(texts, tokenizer, prompts, seed)
        rows = acceptance.measure(folder, drawn, 96, head)
        figures["acceptance"] = [msgspec.to_builtins(row) for row in rows]
        figures["prompts"] = prompts
    return figures


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = ["| part | files | bits per byte (context 512 / 2,048) | top-1 | exact lines: as asked, whole, plain |"]
    lines.append("|---|---|---|---|---|")
    for part, what in PARTS.items():
        row = figures[part]
        exact = " / ".join(f"{row[way]['exact']:.3f}" for way in WAYS)
        bits = f"{row['bits per byte, context 512']:.3f} / {row['bits per byte, context 2048']:.3f}"
        top1 = f"{row['top-1, context 512']:.3f}"
        lines.append(f"| {what} | {row['files']} | {bits} | {top1} | {exact} ({row['lines']} lines) |")
    if "loss by position" in figures:
        shown = ", ".join(f"{span}: {loss:.2f}" for span, loss in figures["loss by position"].items())
        lines += ["", f"Loss in nats by position ({figures['sequences']} sequences): {shown}"]
    for row in figures.get("acceptance", ()):
        lines.append(
            f"\n{row['source']}, temperature {row['temperature']:g}: {row['tokens_per_check']:.2f} tokens a check "
            f"({row['checks']} checks), {row['tokens_per_step']:.2f} a step"
        )
    return "\n".join(lines)


def stretches(texts: list[str], tokenizer: Tokenizer, count: int, seed: int) -> list[list[int]]:
    """Prompts of 120 tokens from anywhere in the texts."""
    rng = random.Random(f"{seed} prompts")
    prompts = []
    for _ in range(count):
        ids = tokenizer.encode(rng.choice(texts), add_special_tokens=False).ids
        start = rng.randrange(max(1, len(ids) - 200))
        prompts.append(ids[start : start + 120])
    return prompts
