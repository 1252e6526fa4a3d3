"""Windows that only copying can predict: random token ids that are repeated, or looked up by a key.

A model learns to continue what it has seen before (an induction head, Olsson et al. 2022) fastest here, since every
counted token follows from the window and from nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from tools.training.windows import Window, fitted

_FIRST_ID = 5
"""Smaller ids are special tokens."""


class CopyingSource:
    """A WindowSource of random ids of a vocabulary, the same for the same seed."""

    def __init__(self, vocabulary: int, seed: int, twins: Sequence[tuple[int, int]] = ()) -> None:
        """twins: pairs of ids, without and with a space before the piece; some passages are repeated as their twins."""
        self._vocabulary = vocabulary
        self._seed = seed
        self._twins = twins

    def window(self, number: int, length: int) -> Window:
        """Repeated passages and tables with look-ups, in random order, until the window is full."""
        choices = random.Random(f"{self._seed}/copying/{length}/{number}")
        tokens: list[int] = []
        counted: list[bool] = []
        while len(tokens) < length + 1:
            more, more_counted = (self._again if choices.random() < 0.45 else self._table)(choices, length)
            tokens += more
            counted += more_counted
        return fitted(tokens, counted, length, 0)

    def _alphabet(self, choices: random.Random) -> list[int]:
        """Random ids. Among few ids, several in a row identify a position; among many, a single one does."""
        size = int(math.exp(choices.uniform(math.log(12), math.log(self._vocabulary))))
        return [choices.randrange(_FIRST_ID, self._vocabulary) for _ in range(size)]

    def _again(self, choices: random.Random, length: int) -> tuple[list[int], list[bool]]:
        """A passage, then one or two parts of it again, perhaps with random ids between them."""
        alphabet = self._alphabet(choices)
        size = choices.randint(6, min(length // 2, 128))
        passage = choices.choices(alphabet, k=size)
        tokens, counted = list(passage), [False] * size
        if self._twins and choices.random() < 0.4:
            pairs = choices.choices(choices.choices(self._twins, k=len(alphabet)), k=size)
            way = choices.choice((1, -1))
            tokens, passage = ([pair[::way][side] for pair in pairs] for side in (0, 1))
        for _ in range(choices.randint(1, 2)):
            between = choices.randint(1, 12) if choices.random() < 0.5 else 0
            tokens += [choices.randrange(_FIRST_ID, self._vocabulary) for _ in range(between)]
            part = passage[choices.randint(0, size // 2) : choices.randint(size // 2, size)]
            found_after = min(4 if len(alphabet) < 100 else 2, len(part))
            tokens += part
            counted += [False] * (between + found_after) + [True] * (len(part) - found_after)
        return tokens, counted

    def _table(self, choices: random.Random, length: int) -> tuple[list[int], list[bool]]:
        """Records of a key and a value among fixed ids, then some of them again, whose values count.

        There are at most as many records as fit: look-ups over 2,000 tokens are learned in such windows.
        """
        alphabet = self._alphabet(choices)
        before, between, after = (
            choices.choices(alphabet, k=choices.randint(*sizes)) for sizes in ((0, 3), (1, 3), (0, 2))
        )
        values = alphabet[-choices.choice((10, 40, 400)) :]
        count = round(math.exp(choices.uniform(math.log(2), math.log(max(3, length // 14)))))
        keys = {tuple(choices.choices(alphabet[:60], k=choices.randint(1, 4))) for _ in range(count)}
        records = [(key, choices.choices(values, k=choices.randint(1, 4))) for key in sorted(keys)]
        choices.shuffle(records)
        tokens: list[int] = []
        counted: list[bool] = []
        for key, value in records:
            tokens += [*before, *key, *between, *value, *after]
        counted += [False] * len(tokens)
        for key, value in choices.sample(records, min(len(records), choices.randint(4, 12) + len(records) // 4)):
            tokens += [*before, *key, *between, *value, *after]
            known = len(between) + len(value) + len(after)
            counted += [False] * (len(before) + len(key)) + [True] * known
        return tokens, counted
