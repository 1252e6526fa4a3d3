"""`python -m tools.training drafts`: measures the tokens that a check of drafts yields, by source and temperature."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
import torch
from tokenizers import Tokenizer

from evals.slices.registry import SLICES
from evals.slices.split import Split
from tools.training.acceptance import Acceptance, measure
from tools.training.chat_source import ChatCoder
from tools.training.code_files import load
from tools.training.evaluate_command import PARTS, stretches

LONGEST_QUESTION = 1500
"""Longest question in tokens: looking something up in a text of 2,000 shows nothing about drafts and takes long."""


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--corpus", type=click.Path(path_type=Path, exists=True), help="Of a code model; else chats are asked.")
@click.option(
    "--head", type=click.Path(path_type=Path, exists=True), help="Default: the folder `draft` in the model's."
)
@click.option("--prompts", default=24, show_default=True, help="Stretches of code, or questions of each slice times 8.")
@click.option("--new-tokens", default=96, show_default=True, help="At most, to each.")
@click.option("--seed", default=5, show_default=True)
def command(model: Path, corpus: Path | None, head: Path | None, prompts: int, new_tokens: int, seed: int) -> None:
    """Continue held-out text one piece at a time, with three drafts a check."""
    torch.set_num_threads(1)
    drawn = questions(model, prompts // 8) if corpus is None else code(model, corpus, prompts, seed)
    rows = measure(model, drawn, new_tokens, head or model / "draft")
    click.echo(table(rows, len(drawn)))
    click.echo(msgspec.json.encode({"model": model.name, "prompts": len(drawn), "acceptance": rows}).decode())


def questions(model: Path, each: int) -> list[list[int]]:
    """`each` held-out questions of every slice, as the chat template renders them."""
    coder = ChatCoder(model)
    items = [one.item(1000 + number, Split.HELD_OUT) for one in SLICES for number in range(each)]
    prompts = [coder.prompt(item.messages) for item in items]
    return [ids for ids in prompts if len(ids) < LONGEST_QUESTION]


def code(model: Path, corpus: Path, count: int, seed: int) -> list[list[int]]:
    """Stretches of held-out code, the same as the evaluation's."""
    files = load(corpus)
    texts = [text for part in PARTS for text in files.part(part).values()]
    return stretches(texts, Tokenizer.from_file(str(model / "tokenizer.json")), count, seed)


def table(rows: list[Acceptance], prompts: int) -> str:
    """Tokens per check and per step, as Markdown."""
    lines = [f"| {prompts} prompts: tokens per check / per step | greedy | temperature 1 |", "|---|---|---|"]
    for source in ("EAGLE", "n-gram"):
        cells = [f"{row.tokens_per_check:.2f} / {row.tokens_per_step:.2f}" for row in rows if row.source == source]
        lines.append(f"| {source} | {' | '.join(cells)} |")
    return "\n".join(lines)
