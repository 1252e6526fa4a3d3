"""Computes from the roofline how many drafts pay at each batch size.

If each of n drafts is accepted with probability a after its predecessors, a check yields (1 − aⁿ⁺¹) / (1 − a) tokens.
It reads the weights once for all n + 1 positions of every stream. So drafts are nearly free while a step is memory-
bound, and cost as much as tokens once it is compute-bound. Source: Leviathan et al. 2023, equation 1, with the
roofline's times in place of the paper's constant cost.
"""

from __future__ import annotations

from engines.performance.roofline import Roofline
from tools.launch.draft_head import HEAD_BYTES

STEPS = (1, 3, 5, 7)
"""Numbers of drafts that are tried; heads are trained to draft seven tokens ahead."""
BATCHES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
MIN_GAIN = 1.1
"""A smaller gain may be an error of the model: a check runs kernels of odd shapes, which the roofline does not know."""
ALIKE = 0.95
"""Fraction of the largest gain that suffices: fewer drafts take less memory and suit texts of lower acceptance."""
POOR, GOOD = 0.4, 0.9
"""Range of acceptance that an engine may see, from a text unlike any other to one that repeats itself."""


class Drafting:
    """The gain from drafts on one machine for streams of one length."""

    def __init__(self, roofline: Roofline, head_parameters: float, context_tokens: float) -> None:
        """head_parameters: 0 for drafts without a head. context_tokens: mean of one stream."""
        self._roofline = roofline
        self._context_tokens = context_tokens
        model = roofline.node.model
        self._head_s = roofline.weights_s * head_parameters * HEAD_BYTES / model.weights_bytes
        self._head_s_per_token = roofline.linear_s_per_token * head_parameters / model.parameters
        self._layer_s = roofline.decode_overhead_s / model.layers if head_parameters else 0.0

    def gain(self, batch: int, steps: int, acceptance: float) -> float:
        """Tokens per second with `steps` drafts, divided by those without drafts."""
        if steps == 0:
            return 1.0
        plain_s = self._roofline.decode_s(batch, batch * self._context_tokens)
        kept = (1 - acceptance ** (steps + 1)) / (1 - acceptance)
        return kept * plain_s / (plain_s + self.cost_s(batch, batch, steps))

    def cost_s(self, tokens: int, drafting: int, steps: int) -> float:
        """Time that drafts add to a step of `tokens` tokens, including prompt tokens, if `drafting` streams have
        `steps` drafts each."""
        if not drafting:
            return 0.0
        line, more = self._roofline, drafting * steps
        linear_s = max(line.linear_s_per_token * (tokens + more), line.weights_s) - max(
            line.linear_s_per_token * tokens, line.weights_s
        )
        check_s = linear_s + line.pair_s * more * self._context_tokens + line.sum_s_per_token * more
        return check_s + steps * (max(self._head_s_per_token * drafting, self._head_s) + self._layer_s)

    def best(self, batch: int, acceptance: float, most: int) -> int:
        """The fewest drafts that gain about as much as any number up to `most`; 0 if none gains enough."""
        gains = {steps: self.gain(batch, steps, acceptance) for steps in sorted({*STEPS, most}) if steps <= most}
        largest = max(gains.values())
        if largest < MIN_GAIN:
            return 0
        return next(steps for steps, gain in gains.items() if gain >= largest * ALIKE)

    def schedule(self, acceptance: float, most: int, max_running: int) -> dict[int, int]:
        """The number of drafts by largest batch, in order and starting with `most`; larger batches draft nothing."""
        schedule = {1: most}
        for batch in _up_to(max_running)[1:]:
            (largest, steps) = list(schedule.items())[-1]
            fewer = min(steps, self.best(batch, acceptance, most))
            if not fewer:
                break
            if fewer == steps:
                del schedule[largest]
            schedule[batch] = fewer
        return schedule

    def adaptive(self, most: int, max_running: int) -> dict[int, list[int]]:
        """The numbers of drafts, by smallest batch, among which an engine chooses by measured acceptance: the best ones
        for texts of poor, usual and good acceptance."""
        table: dict[int, list[int]] = {}
        for batch in _up_to(max_running):
            steps = sorted({self.best(batch, each, most) for each in (POOR, (POOR + GOOD) / 2, GOOD)})
            if not table or list(table.values())[-1] != steps:
                table[batch] = steps
        return table


def _up_to(max_running: int) -> list[int]:
    return [batch for batch in BATCHES if batch < max_running] + [max_running]
