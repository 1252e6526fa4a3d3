"""The model's confidence in a completion: the geometric mean of its tokens' probabilities.

Only tokens of text that the client would see count: text that a rule has cut off says nothing about the rest, and how
far an engine runs before it is stopped is chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from contracts.errors import EngineFailed

BYTES = "bytes:"
"""Prefix of engines' names for tokens that are partial characters: they count as no character."""


def characters_of(token: str) -> int:
    """Number of characters of a token."""
    return 0 if token.startswith(BYTES) else len(token)


def untold_of(token: str, opening: str) -> int:
    """Number of characters of an output's first token that repeat the end of the required beginning."""
    most = min(characters_of(token) - 1, len(opening))
    return next((size for size in range(most, 0, -1) if opening.endswith(token[:size])), 0)


class Confidence:
    """Of one completion. least: below it, in [0, 1], the completion is not worth showing. opening: text that the output
    begins with and that stands in the file already (`TextPrompt.begins_with`): engines do not report it, nor tokens
    within it; the first reported token may begin with its end."""

    def __init__(self, least: float, opening: str = "") -> None:
        self._least = least
        self._opening = opening
        self._untold = 0
        """Characters of the first token that stand in the file."""
        self._sizes: list[int] = []
        """Characters of each token."""
        self._values: list[float | None] = []
        """Natural logarithms of the tokens' probabilities; None: not reported."""

    @property
    def told(self) -> bool:
        """The engine has reported at least one."""
        return any(value is not None for value in self._values)

    def add(self, logprobs: Mapping[str, Any] | None) -> None:
        """Add the `logprobs` of a completion's event. Raises EngineFailed where they are no log probabilities."""
        if not logprobs:
            return
        tokens, values = logprobs.get("tokens") or (), logprobs.get("token_logprobs") or ()
        try:
            for token, value in zip(tokens, values, strict=False):
                if not self._sizes:
                    self._untold = untold_of(str(token), self._opening)
                self._sizes.append(characters_of(str(token)))
                # a logarithm above 0 is no probability's, and e to that power may overflow
                self._values.append(None if value is None else float(value) if value < 0 else 0.0)
        except (TypeError, ValueError, OverflowError) as error:
            raise EngineFailed("The engine's log probabilities are not numbers.", detail=str(error)) from None

    def mean(self, characters: int) -> float | None:
        """Mean over the tokens within the first `characters`; None: none is known."""
        numbers: list[float] = []
        starts = accumulate(self._sizes, initial=-self._untold)
        for start, value in zip(starts, self._values, strict=False):
            if value is not None and start < characters:
                numbers.append(value)
        return math.exp(sum(numbers) / len(numbers)) if numbers else None

    def is_enough(self, characters: int) -> bool:
        """Whether the first `characters`, the rest of the completion, may be shown."""
        mean = self.mean(characters)
        return mean is None or mean >= self._least
