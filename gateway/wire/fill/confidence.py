"""How sure the model was of a completion: the geometric mean of its tokens' probabilities.

Only tokens of text that the client would be shown count: what a rule has cut off tells nothing about the rest, and how
far an engine runs on before it is stopped is chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

BYTES = "bytes:"
"""How engines name a token that is no whole characters: it is taken to have none."""


def characters_of(token: str) -> int:
    """How many characters of the text a token has."""
    return 0 if token.startswith(BYTES) else len(token)


class Confidence:
    """Of one completion. least: below it, in [0, 1], the completion is not worth showing. typed: characters that the
    output begins with and that stand in the file already: their tokens are told, their text is not."""

    def __init__(self, least: float, typed: int = 0) -> None:
        self._least = least
        self._typed = typed
        self._sizes: list[int] = []
        """Characters of each token."""
        self._values: list[float | None] = []
        """Their natural logarithms of probabilities; None: not told."""

    @property
    def told(self) -> bool:
        """The engine has told any."""
        return any(value is not None for value in self._values)

    def add(self, logprobs: Mapping[str, Any] | None) -> None:
        """What a completion's event has as `logprobs`."""
        if not logprobs:
            return
        tokens, values = logprobs.get("tokens") or (), logprobs.get("token_logprobs") or ()
        for token, value in zip(tokens, values, strict=False):
            self._sizes.append(characters_of(str(token)))
            self._values.append(None if value is None else float(value))

    def mean(self, characters: int) -> float | None:
        """Of the tokens that have any of the first `characters`; None: of none is it known."""
        numbers: list[float] = []
        starts = accumulate(self._sizes, initial=-self._typed)
        for start, size, value in zip(starts, self._sizes, self._values, strict=False):
            if value is not None and start < characters and (start >= 0 or start + size > 0):
                numbers.append(value)
        return math.exp(sum(numbers) / len(numbers)) if numbers else None

    def is_enough(self, characters: int) -> bool:
        """Whether the completion's first `characters`, all that is left of it, may be shown."""
        mean = self.mean(characters)
        return mean is None or mean >= self._least
