"""Windows of any texts, in a model's own tokenizer and chat template."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from engines.embedded.quantization.passages import Passage, read_passages
from engines.tokenizer.tokenizer import Tokenizer
from tools.training.windows import Window, fitted


class TextSource:
    """A `WindowSource` of the texts' passages in random order, with a new order in each round."""

    def __init__(self, path: Path, tokenizer: Tokenizer, seed: int, most_tokens: int) -> None:
        """path: see `read_passages`; most_tokens: limit over all texts."""
        self._path = path
        self._tokenizer = tokenizer
        self._seed = seed
        self._most_tokens = most_tokens
        self._passages = cache(self._read)
        self._order = cache(self._shuffled)

    def window(self, number: int, length: int) -> Window:
        """See `WindowSource`. Raises ConfigError if the texts cannot be read or are empty."""
        passages = self._passages(length)
        round_, index = divmod(number, len(passages))
        passage = passages[self._order(round_, len(passages))[index]]
        counted = [position > passage.start for position in range(len(passage.ids))]
        return fitted(passage.ids, counted, length, 0)

    def _read(self, length: int) -> list[Passage]:
        return read_passages(self._path, self._tokenizer, length + 1, self._most_tokens)

    def _shuffled(self, round_: int, count: int) -> list[int]:
        order = list(range(count))
        random.Random(f"{self._seed}/{round_}").shuffle(order)
        return order
