"""OpenAI's `best_of`: more choices are generated than returned, and the likeliest per token are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from contracts.generation import Sampling

Choice = dict[str, Any]


class BestOf(msgspec.Struct, frozen=True):
    """Selection among the choices of one request."""

    tried: int
    """Choices generated for every prompt."""
    kept: int
    """Number of choices that the client requested."""
    report: bool
    """Whether the client wants the log probabilities by which the choices are compared."""

    def pick(self, choices: Mapping[int, Choice], output_tokens: Mapping[int, int]) -> list[Choice]:
        """The best choices of each prompt, best first, renumbered. choices: whole choices by number, prompt by prompt.
        output_tokens: how many log probabilities at a choice's end belong to generated tokens; all without an entry."""
        picked: list[Choice] = []
        for first in range(0, len(choices), self.tried):
            numbers = sorted(
                range(first, first + self.tried),
                key=lambda number: likelihood(choices[number], output_tokens.get(number)),
                reverse=True,
            )
            picked += [choices[number] for number in numbers[: self.kept]]
        return [
            {**choice, "index": index, "logprobs": choice["logprobs"] if self.report else None}
            for index, choice in enumerate(picked)
        ]


def best_of(sampling: Sampling) -> BestOf | None:
    """The selection; None if every choice is returned."""
    return None if sampling.best is None else BestOf(sampling.n, sampling.best, sampling.logprobs is not None)


def likelihood(choice: Choice, output_tokens: int | None) -> float:
    """Mean log probability of a choice's generated tokens; negative infinity if none is known."""
    values = (choice.get("logprobs") or {}).get("token_logprobs") or []
    if isinstance(values, msgspec.Raw):
        values = msgspec.json.decode(values)
    if output_tokens is not None:
        values = values[len(values) - min(output_tokens, len(values)) :]
    known = [value for value in values if isinstance(value, int | float)]
    return sum(known) / len(known) if known else -math.inf
