"""The model's confidence in a completion: the geometric mean of its tokens' probabilities.

Only tokens of text that the client would see count. Text that a rule has cut off is no evidence about the rest, and how
far an engine runs before it is stopped is random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from contracts.errors import EngineFailed

BYTES = "bytes:"
"""Prefix of engines' names for tokens that are partial characters, which count as no characters."""


def characters_of(token: str) -> int:
    """Number of characters of a token."""
    return 0 if token.startswith(BYTES) else len(token)


def untold_of(token: str, opening: str) -> int:
    """Number of characters of an output's first token that repeat the end of the required beginning."""
    most = min(characters_of(token) - 1, len(opening))
    return next((size for size in range(most, 0, -1) if opening.endswith(token[:size])), 0)


class Confidence:
    """The confidence of one completion. least: the threshold in [0, 1] below which the completion is not worth showing.
    opening: text with which the output begins and which is already in the file (`TextPrompt.begins_with`). Engines do
    not report it, nor tokens within it; the first reported token may begin with its end."""

    def __init__(self, least: float, opening: str = "") -> None:
        self._least = least
        self._opening = opening
        self._untold = 0
        """Characters of the first token that are already in the file."""
        self._sizes: list[int] = []
        """Characters of each token."""
        self._values: list[float | None] = []
        """Natural logarithms of the tokens' probabilities; None if not reported."""

    @property
    def told(self) -> bool:
        """Whether the engine has reported a probability."""
        return any(value is not None for value in self._values)

    def add(self, logprobs: Mapping[str, Any] | None) -> None:
        """Add the `logprobs` of a completion's event. Raises EngineFailed if they are not log probabilities."""
        if not logprobs:
            return
        tokens, values = logprobs.get("tokens") or (), logprobs.get("token_logprobs") or ()
        try:
            for token, value in zip(tokens, values, strict=False):
                if not self._sizes:
                    self._untold = untold_of(str(token), self._opening)
                self._sizes.append(characters_of(str(token)))
                # a log probability is never above 0, and e to such a power may overflow
                self._values.append(None if value is None else float(value) if value < 0 else 0.0)
        except (TypeError, ValueError, OverflowError) as error:
            raise EngineFailed("The engine's log probabilities are not numbers.", detail=str(error)) from None

    def mean(self, characters: int) -> float | None:
        """Mean over the tokens within the first `characters`; None if none is reported."""
        numbers: list[float] = []
        starts = accumulate(self._sizes, initial=-self._untold)
        for start, value in zip(starts, self._values, strict=False):
            if value is not None and start < characters:
                numbers.append(value)
        return math.exp(sum(numbers) / len(numbers)) if numbers else None

    def is_enough(self, characters: int) -> bool:
        """Whether the first `characters`, which remain of the completion, may be shown."""
        mean = self.mean(characters)
        return mean is None or mean >= self._least
