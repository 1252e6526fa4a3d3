"""Prompts for all rivals: pieces of this repository's source as token ids, so that no rival tokenizes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engine_cpu_rivals.process import REPOSITORY
from engines.tokenizer.tokenizer import Tokenizer


class Prompts:
    """Endless prompts of 0.5 to 1.5 times a mean length; the same seed gives the same prompts."""

    def __init__(self, model: Path, mean_tokens: int) -> None:
        tokenizer = Tokenizer.load(model)
        files = sorted((REPOSITORY / "engines").rglob("*.py"))
        self._ids = [id_ for path in files for id_ in tokenizer.encode(path.read_text())]
        self._mean_tokens = mean_tokens
        question = [{"role": "user", "content": "What is the capital of France?"}]
        code = "def add(a, b):\n    return a + b\n\n\ndef multiply(a, b):\n"
        self.familiar = list(tokenizer.chat_ids(question)) if tokenizer.has_chat_template else tokenizer.encode(code)
        """A prompt of the kind that the model was trained on: all rivals should continue it alike."""
        self.longest_tokens = mean_tokens * 3 // 2

    def sequence(self, *seed: int) -> Iterator[list[int]]:
        """Prompts that start at random places, so that prefix caches do not help."""
        source = random.Random(repr(seed))
        while True:
            length = source.randint(self._mean_tokens // 2, self.longest_tokens)
            start = source.randrange(len(self._ids) - length)
            yield self._ids[start : start + length]
