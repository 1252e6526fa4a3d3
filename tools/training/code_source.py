"""Windows of code: half plain text left to right, half gaps to fill, each document laid out to fit its window."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from contracts.errors import ConfigError
from tools.training.fim import Coded, FimTokens, broken, lay_out, several_lines, single_line
from tools.training.windows import Window, fitted

CHARACTERS_PER_TOKEN = 3.2


class CodeSource:
    """Windows over texts, which are drawn in proportion to weight times size."""

    def __init__(
        self, texts: Sequence[str], weights: Sequence[float], tokenizer: Path, seed: int, fim_share: float = 0.5
    ) -> None:
        """weights: the relative frequency of each text's characters."""
        self._texts = texts
        self._reach = list(itertools.accumulate(len(text) * w for text, w in zip(texts, weights, strict=True)))
        self._tokenizer = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
        self._seed = seed
        self._fim_share = fim_share
        self._fim = fim_tokens(self._tokenizer)
        pad = self._tokenizer.token_to_id("<|pad|>")
        self._pad = self._fim.end if pad is None else pad

    def window(self, number: int, length: int) -> Window:
        rng = random.Random(f"{self._seed} window {number}")
        coded = self._gaps(rng, length) if rng.random() < self._fim_share else self._plain(rng, length)
        return fitted(coded.ids, coded.counted, length, self._pad)

    def _text(self, rng: random.Random) -> str:
        return self._texts[bisect.bisect(self._reach, rng.random() * self._reach[-1])]

    def _plain(self, rng: random.Random, length: int) -> Coded:
        """Documents one after another; the first may begin anywhere in its text."""
        ids: list[int] = []
        counted: list[bool] = []
        while len(ids) <= length:
            text = self._text(rng)
            size = int((length + 1 - len(ids)) * CHARACTERS_PER_TOKEN * 1.3)
            if not ids and rng.random() < 0.75 and len(text) > size // 2:
                at = text.find("\n", rng.randrange(len(text) - size // 2)) + 1
            else:
                at = 0
                ids.append(self._fim.end)
                counted.append(True)
            coded = broken(text[at : at + size], self._encode, rng)
            ids += coded.ids
            counted += coded.counted
        return Coded(ids, counted)

    def _gaps(self, rng: random.Random, length: int) -> Coded:
        """Pieces with a gap, until too little room is left for another."""
        ids: list[int] = []
        counted: list[bool] = []
        while (room := length + 1 - len(ids)) >= 96:
            wanted = room if rng.random() < 0.35 else rng.randint(64, room)
            text = self._text(rng)
            size = max(200, int(wanted * CHARACTERS_PER_TOKEN))
            at = rng.randrange(max(1, len(text) - size // 2))
            piece = text[text.find("\n", at) + 1 if at else 0 :][:size]
            gap = (single_line if rng.random() < 0.8 else several_lines)(piece, rng)
            if gap is not None:
                coded = lay_out(gap, self._encode, self._fim, rng.random() < 0.6, wanted)
                ids += coded.ids
                counted += coded.counted
        return Coded(ids, counted)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def fim_tokens(tokenizer: Tokenizer) -> FimTokens:
    """The ids of a tokenizer's gap tokens. Raises ConfigError, naming a missing one."""
    ids: list[int] = []
    for name in ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|endoftext|>"):
        number = tokenizer.token_to_id(name)
        if number is None:
            raise ConfigError(f"tokenizer.json: no token {name}: it is not a code model's")
        ids.append(number)
    return FimTokens(*ids)
