"""Windows of any texts, by a model's own tokenizer and chat template."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from engines.embedded.quantization.passages import Passage, read_passages
from engines.tokenizer.tokenizer import Tokenizer
from tools.training.windows import Window, fitted


class TextSource:
    """A `WindowSource`: the texts' passages in an order of its own, and again in another one."""

    def __init__(self, path: Path, tokenizer: Tokenizer, seed: int, most_tokens: int) -> None:
        """path: as `read_passages` takes it; most_tokens: of the texts in all."""
        self._path = path
        self._tokenizer = tokenizer
        self._seed = seed
        self._most_tokens = most_tokens
        self._passages = cache(self._read)
        self._order = cache(self._shuffled)

    def window(self, number: int, length: int) -> Window:
        """See `WindowSource`. Raises ConfigError when the texts cannot be read or hold nothing."""
        passages = self._passages(length)
        round_, place = divmod(number, len(passages))
        passage = passages[self._order(round_, len(passages))[place]]
        counted = [position > passage.start for position in range(len(passage.ids))]
        return fitted(passage.ids, counted, length, 0)

    def _read(self, length: int) -> list[Passage]:
        return read_passages(self._path, self._tokenizer, length + 1, self._most_tokens)

    def _shuffled(self, round_: int, count: int) -> list[int]:
        order = list(range(count))
        random.Random(f"{self._seed}/{round_}").shuffle(order)
        return order
