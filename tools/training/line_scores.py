"""Measures how often a model completes the rest of a line exactly, with both sides of the gap and from left to right.

Lines are drawn uniformly from all code lines of the held-out files (not blank, no comment, at least four characters,
not among a file's first three lines), and cursors uniformly from their content, so that between 1 and all characters
are wanted. The model sees `PREFIX_CHARACTERS` before the cursor and `SUFFIX_CHARACTERS` after the line, and generates
greedily until a newline or its end token. The text must be the same except for trailing spaces.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch.nn import functional

from contracts.errors import ConfigError
from engines.tokenizer.tokenizer import Tokenizer
from tools.training.greedy import generate
from tools.training.model import Llama

PREFIX_CHARACTERS, SUFFIX_CHARACTERS = 1600, 500
MAX_TOKENS = 48
AS_ASKED = "as the gateway asks"
WHOLE_PREFIX = "whole prefix before the middle token"
LEFT_TO_RIGHT = "left to right"
WAYS = (AS_ASKED, WHOLE_PREFIX, LEFT_TO_RIGHT)


class Cursor(NamedTuple):
    """A position in a line: the text before it, the rest of the line, and the text after the line."""

    before: str
    rest: str
    after: str
    text: int = 0
    """Number of the text that it was drawn from."""


class LineScores(NamedTuple):
    """The scores of one way to prompt."""

    exact: float
    exact_long: float
    """Exact share of the lines of which at least eight characters are wanted."""
    bits_per_byte: float
    """Bits per byte of the true rest, given the prompt."""


def draw(texts: Sequence[str], count: int, seed: int, *, whole: bool = False) -> list[Cursor]:
    """Cursors as described above; the same for the same arguments. whole: with all of the text before and after."""
    spans: list[tuple[int, int, int]] = []
    for index, text in enumerate(texts):
        start = 0
        for number, line in enumerate(text.splitlines(keepends=True)):
            content = line.strip()
            if number >= 3 and len(content) >= 4 and not content.startswith("#"):
                first = start + line.index(content)
                spans.append((index, first, first + len(content)))
            start += len(line)
    rng = random.Random(seed)
    cursors = []
    for index, first, end in rng.sample(spans, min(count, len(spans))):
        at, text = rng.randrange(first, end), texts[index]
        if whole:
            cursors.append(Cursor(text[:at], text[at:end], text[end:], index))
            continue
        head = text[max(0, at - PREFIX_CHARACTERS) : at]
        if at > PREFIX_CHARACTERS:
            head = head[head.find("\n") + 1 :]
        tail = text[end : end + SUFFIX_CHARACTERS]
        tail = tail if end + SUFFIX_CHARACTERS >= len(text) else _whole_lines(tail)
        cursors.append(Cursor(head, text[at:end], tail, index))
    return cursors


def prompts(tokenizer: Tokenizer, cursor: Cursor) -> dict[str, list[int]]:
    """The prompts by way: as the gateway sends it, with the whole prefix before the middle token, and left to right.
    The first two differ for a model that learned to continue the half-typed line (`engines/tokenizer/fill.py`).
    Raises ConfigError for a model that cannot fill gaps."""
    if tokenizer.fill is None:
        raise ConfigError("the model has no fill-in-the-middle tokens: there is no line for it to complete")
    whole = msgspec.structs.replace(tokenizer.fill, line_after=False)
    return {
        AS_ASKED: tokenizer.fill_ids(cursor.before, cursor.after),
        WHOLE_PREFIX: whole.fill((), cursor.before, cursor.after, tokenizer.encode),
        LEFT_TO_RIGHT: tokenizer.encode(cursor.before),
    }


def score_lines(folder: Path, model: Llama, cursors: Sequence[Cursor]) -> dict[str, LineScores]:
    """Scores by way to prompt. folder: the exported model, which generates; model: the same model, for losses."""
    tokenizer = Tokenizer.load(folder)
    by_cursor = [prompts(tokenizer, cursor) for cursor in cursors]
    scores = {}
    for way in by_cursor[0]:
        ids = [ways[way] for ways in by_cursor]
        texts = generate(folder, ids, max_tokens=MAX_TOKENS, stop=("\n",)).texts
        right = [text.rstrip() == cursor.rest.rstrip() for text, cursor in zip(texts, cursors, strict=True)]
        long = [hit for hit, cursor in zip(right, cursors, strict=True) if len(cursor.rest) >= 8]
        bits = sum(
            _nats(model, prompt, tokenizer.encode(cursor.rest)) for prompt, cursor in zip(ids, cursors, strict=True)
        ) / math.log(2)
        size = sum(len(cursor.rest.encode()) for cursor in cursors)
        scores[way] = LineScores(sum(right) / len(right), sum(long) / max(1, len(long)), bits / size)
    return scores


def _whole_lines(text: str) -> str:
    return text[: text.rfind("\n") + 1] or text


@torch.inference_mode()
def _nats(model: Llama, prompt: list[int], rest: list[int]) -> float:
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(torch.tensor([prompt + rest[:-1]]))[0, len(prompt) - 1 :]
    return float(functional.cross_entropy(model.scores(hidden.float()), torch.tensor(rest), reduction="sum"))
