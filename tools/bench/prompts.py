"""Prompts that share a prefix exactly where their arrivals do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic, TypeVar

from tools.simulator.arrival import Arrival

Item = TypeVar("Item", int, str)

WORDS = tuple(
    """
    the of and to in is you that it he was for on are as with his they at be this have from or one had by word but
    not what all were we when your can said there use an each which she do how their if will up other about out many
    then them these so some her would make like him into time has look two more write go see number no way could people
    """.split()  # noqa: SIM905  a list of words
)
"""Each word is at most a few tokens in any vocabulary."""


class Prompts(Generic[Item]):
    """Prompts of token ids or of words. Prompts with different seeds share only single items."""

    def __init__(self, seed: int | str, vocabulary: Sequence[Item], block_tokens: int, per_token: float = 1.0) -> None:
        """block_tokens: length of an arrival's block. per_token: items per token."""
        self._seed = seed
        self._vocabulary: Sequence[Item] = vocabulary
        self._per_token = per_token
        self._block_items = max(round(block_tokens * per_token), 1)
        self._known: dict[bytes, list[Item]] = {}

    def of(self, number: int, arrival: Arrival) -> list[Item]:
        """number: the request's, which seeds the part that it shares with no other request."""
        items = [item for block in arrival.blocks for item in self._block(block)]
        rest = random.Random(f"{self._seed} {number}")  # noqa: S311  repeatable
        wanted = max(round(arrival.prompt_tokens * self._per_token), 1)
        return items + [rest.choice(self._vocabulary) for _ in range(wanted - len(items))]

    def _block(self, block: bytes) -> list[Item]:
        if block not in self._known:
            source = random.Random(f"{self._seed} {block.hex()}")  # noqa: S311  repeatable
            self._known[block] = [source.choice(self._vocabulary) for _ in range(self._block_items)]
        return self._known[block]
