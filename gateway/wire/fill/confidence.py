"""How sure the model was of a completion: the geometric mean of its tokens' probabilities.

Only tokens of text that the client would be shown count: what a rule has cut off tells nothing about the rest, and how
far an engine runs on before it is stopped is chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from contracts.errors import EngineFailed

BYTES = "bytes:"
"""How engines name a token that is no whole characters: it is taken to have none."""


def characters_of(token: str) -> int:
    """How many characters of the text a token has."""
    return 0 if token.startswith(BYTES) else len(token)


def untold_of(token: str, opening: str) -> int:
    """How many characters of an output's first token are the end of what the output had to begin with."""
    most = min(characters_of(token) - 1, len(opening))
    return next((size for size in range(most, 0, -1) if opening.endswith(token[:size])), 0)


class Confidence:
    """Of one completion. least: below it, in [0, 1], the completion is not worth showing. opening: text that the output
    begins with and that stands in the file already (`TextPrompt.begins_with`): it is not told, nor are tokens that hold
    nothing else; the first token that is told may begin with its end."""

    def __init__(self, least: float, opening: str = "") -> None:
        self._least = least
        self._opening = opening
        self._untold = 0
        """Characters of the first token that stand in the file."""
        self._sizes: list[int] = []
        """Characters of each token."""
        self._values: list[float | None] = []
        """Their natural logarithms of probabilities; None: not told."""

    @property
    def told(self) -> bool:
        """The engine has told any."""
        return any(value is not None for value in self._values)

    def add(self, logprobs: Mapping[str, Any] | None) -> None:
        """What a completion's event has as `logprobs`. Raises EngineFailed for what are no log probabilities."""
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
            raise EngineFailed("The engine's log probabilities are no numbers.", detail=str(error)) from None

    def mean(self, characters: int) -> float | None:
        """Of the tokens that have any of the first `characters`; None: of none is it known."""
        numbers: list[float] = []
        starts = accumulate(self._sizes, initial=-self._untold)
        for start, value in zip(starts, self._values, strict=False):
            if value is not None and start < characters:
                numbers.append(value)
        return math.exp(sum(numbers) / len(numbers)) if numbers else None

    def is_enough(self, characters: int) -> bool:
        """Whether the completion's first `characters`, all that is left of it, may be shown."""
        mean = self.mean(characters)
        return mean is None or mean >= self._least
