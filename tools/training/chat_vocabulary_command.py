"""`python -m tools.training chat_vocabulary`: learns the chat model's vocabulary from evals/slices."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from evals.slices.draw import FIRST_SYLLABLES, NEXT_SYLLABLES
from evals.slices.item import Slice
from evals.slices.registry import SLICES
from evals.slices.split import Split, side
from evals.slices.vocabulary import CITIES, COMMON, NAMES
from tools.training.chat_vocabulary import learn

LONGEST = 1000
"""Longest text that is read, in characters: a longer one is a table of invented words."""


def texts(one: Slice, items: int) -> Iterator[str]:
    """The texts of a slice's first training items, without invented words."""
    known = {*COMMON, *NAMES, *CITIES}
    for seed in range(items):
        item = one.item(seed, Split.TRAIN)
        invented = {parts[0] for kind, *parts in item.marks if kind == "word" and parts[0] not in known}
        invented |= {word.capitalize() for word in invented}
        pattern = re.compile(rf"\b(?:{'|'.join(sorted(invented, key=len, reverse=True))})\b") if invented else None
        for text in (*(message["content"] for message in item.messages), item.reference):
            if len(text) <= LONGEST:
                yield pattern.sub("", text) if pattern else text


@click.command()
@click.option("--like", type=click.Path(path_type=Path), default="models/slipstream-chat", show_default=True)
@click.option("--vocabulary", default=2048, show_default=True, help="Tokens, special ones included.")
@click.option("--items", default=1500, show_default=True, help="Items of each slice.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the tokenizer's files.")
def command(like: Path, vocabulary: int, items: int, out: Path) -> None:
    """Learn a vocabulary in which a word is cut alike with and without a space before it."""
    words = [word for word in COMMON if side("word", word) is Split.TRAIN]
    read = [text for one in SLICES for text in texts(one, items)]
    read += [text for word in words for text in (word, f" {word}") for _ in range(items // 40)]
    begins = [f" {syllable}" for syllable in FIRST_SYLLABLES]
    begins += [f" {syllable.capitalize()}" for syllable in FIRST_SYLLABLES]
    out.mkdir(parents=True, exist_ok=True)
    learn(read, [*begins, *NEXT_SYLLABLES], vocabulary).save(str(out / "tokenizer.json"))
    shutil.copyfile(like / "tokenizer_config.json", out / "tokenizer_config.json")
    click.echo(f"{out}: {vocabulary} tokens")
