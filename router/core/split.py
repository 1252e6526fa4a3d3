"""Decides, only by the costs, whether a request is served whole or split over a prefill/decode pair.

A whole request waits for its prompt and delays the streams on the same engine; a split request waits for its prompt and
for the transfer. With no request ahead on either side, the rule is: split if the transfer takes less time than the
interference that it avoids.
"""

from __future__ import annotations

import msgspec

from router.core.latency_model import KILO
from router.core.regression import Regression

SMALLEST_S = 0.005
TELLING_TRANSFERS = 16
"""Number of transfers after which their learnt rate is used; until then, pairs are tried wherever they could help."""
MARGIN = 0.2
"""Share of the transfer by which the other side must be better before prompts of a length change sides."""
MEASURED_EVERY = 256
"""Number of whole requests in a row, with streams next to them, after which one is split; otherwise a faster transfer
would go unnoticed."""


class Costs(msgspec.Struct, frozen=True):
    """Costs of one request on both sides, in seconds."""

    whole_wait_s: float
    """Time until the prompt is computed if the request is served whole, including the prompts ahead of it."""
    interference_s: float
    """Time for which the streams on that engine pause for the prompt."""
    pair_wait_s: float
    """Time until the prompt is computed on a prefill engine."""
    transfer_s: float
    """Time to transfer its keys and values to the decode engine."""

    @property
    def advantage_s(self) -> float:
        """Advantage of the pair, which is below 0 if the pair costs more."""
        return self.whole_wait_s + self.interference_s - self.pair_wait_s - self.transfer_s


class SplitChoice(msgspec.Struct, frozen=True):
    """The chosen side and the reason."""

    split: bool
    why: str
    costs: Costs | None = None
    """None if nothing was compared."""


def splits(costs: Costs, was_split: bool) -> bool:
    """Whether the pair wins. was_split: the choice for the last prompt of this length."""
    margin_s = MARGIN * costs.transfer_s
    return costs.advantage_s > (-margin_s if was_split else margin_s)


class SplitRule:
    """The memory of one pool whose requests may be split: the transfers, and the last choice for each prompt length."""

    def __init__(self) -> None:
        # transfers initially cost nothing, because only transfers that are tried can be learnt
        self._transfer = Regression((0.0, 0.0), SMALLEST_S)
        self._was_split: dict[int, bool] = {}
        """The last choice by the length's power of two: near equality, one length must not move another."""
        self._whole_in_a_row = 0

    def transfer_s(self, prompt_tokens: int) -> float:
        """Expected time to transfer a prompt's keys and values."""
        return self._transfer.predict((1.0, prompt_tokens / KILO))

    def saw_transfer(self, prompt_tokens: int, seconds: float) -> None:
        """Learn from a pair's first token, which came `seconds` after the prompt was computed."""
        self._transfer.learn((1.0, prompt_tokens / KILO), max(seconds, 0.0))

    def choose(self, prompt_tokens: int, costs: Costs) -> SplitChoice:
        """Choose the side for a prompt of this length, and remember the choice."""
        order = prompt_tokens.bit_length()
        split = splits(costs, self._was_split.get(order, False))
        if self._transfer.count < TELLING_TRANSFERS:
            return SplitChoice(split and costs.interference_s > 0, "transfers are still being measured", costs)
        self._was_split[order] = split
        self._whole_in_a_row = 0 if split else self._whole_in_a_row + (costs.interference_s > 0)
        if self._whole_in_a_row >= MEASURED_EVERY:
            self._whole_in_a_row = 0
            return SplitChoice(True, "transfers are measured again", costs)
        return SplitChoice(split, "the pair costs less" if split else "the pair costs no less", costs)
