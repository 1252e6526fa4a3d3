"""Finds the parts that rounding hurts, one part at a time, chooses those to keep, and measures the choice.

Distances of single parts add up only roughly (compare `Report.sum_of_parts` with `Report.rounded`). So the choice,
which uses sums, is measured as a whole and repeated with a smaller budget until its own bound holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from engines.embedded.quantization.passages import Passage
from engines.embedded.quantization.passes import batches
from tools.quantization.distance import Distance, TextDistance, compare, distance
from tools.quantization.keep import Cost, cheapest
from tools.quantization.scheme import Scheme
from tools.quantization.switched_model import Part, SwitchedModel

BATCH_TOKENS = 2048
"""Tokens in a pass; a longer passage has a pass of its own."""
SHRINK = 0.9
"""Factor by which the budget for sums shrinks at least if the choice does not hold."""
Progress = Callable[[str], None]


class PartReport(msgspec.Struct, frozen=True):
    """One part rounded alone."""

    part: Part
    distance: Distance
    by_scheme: bool
    """Whether the scheme rounds it; other parts are measured for comparison."""


class Report(msgspec.Struct, frozen=True):
    """The worst part comes first."""

    model: str
    scheme: Scheme
    dtype: str
    """Number format of the reference, and of the parts that are not rounded."""
    parts: tuple[PartReport, ...]
    rounded: Distance
    """Distance with everything rounded that the scheme rounds."""
    sum_of_parts: float
    """Sum of KL per token of these parts rounded alone."""
    budget_kl: float
    """KL per token that `kept` must be proved not to exceed."""
    keep: tuple[str, ...]
    """The cheapest choice found with which the budget holds; all parts if no other choice does."""
    kept: Distance
    """Distance with `keep` kept."""
    rounded_bytes: int
    """Rounded size of the scheme's parts."""
    plain_bytes: int
    """Their size before rounding."""
    extra_bytes: int
    """Extra bytes for `keep`."""


class Measured:
    """Compares a reference and a candidate over the same passages."""

    def __init__(self, model: SwitchedModel, passages: Sequence[Passage]) -> None:
        self._model = model
        self._passages = passages
        self._batches = list(batches([passage.ids for passage in passages], BATCH_TOKENS))
        model.round(())
        self._reference: list[Tensor] = [found for batch in self._batches for found in self._run(batch)]

    def texts(self, rounded: Collection[str]) -> list[TextDistance]:
        """The distance of each passage with these parts rounded."""
        self._model.round(rounded)
        found: list[TextDistance] = []
        for batch in self._batches:
            for index, after in zip(batch, self._run(batch), strict=True):
                passage = self._passages[index]
                following = torch.tensor(passage.ids[passage.start + 1 :])
                found.append(compare(passage.text, self._reference[index], after, following))
        return found

    def _run(self, batch: Sequence[int]) -> list[Tensor]:
        return self._model.log_probabilities([self._passages[index] for index in batch])


def measure(
    folder: Path,
    passages: Sequence[Passage],
    scheme: Scheme,
    budget_kl: float,
    dtype: str = "float32",
    progress: Progress = lambda _: None,
) -> Report:
    """Round every part of the model in `folder` alone, then all that the scheme rounds, then all but the kept parts.

    Makes a pass over the texts per part and a few more. Sets PyTorch to one thread, which on a busy machine is faster
    than several that wait for each other. progress: called with the next step. Raises ConfigError about the folder or
    the calibration.
    """
    torch.set_num_threads(1)
    progress("the model as it is")
    model = SwitchedModel(folder, scheme, dtype)
    measured = Measured(model, passages)
    found: list[PartReport] = []
    for number, part in enumerate(model.parts, 1):
        progress(f"{part.name}, part {number} of {len(model.parts)}")
        found.append(PartReport(part, distance(measured.texts({part.name})), scheme.rounds(part.name)))
    found.sort(key=lambda one: one.distance.kl_per_token.value, reverse=True)
    costs = [
        # a part that rounding does not change may be below 0 by the last bit
        Cost(one.part.name, max(0.0, one.distance.kl_per_token.value), one.part.rounded_bytes, one.part.kept_bytes)
        for one in found
        if one.by_scheme
    ]
    every = {cost.name for cost in costs}
    progress("all together")
    whole = kept = distance(measured.texts(every))
    keep: tuple[str, ...] = ()
    total = allowed = sum(cost.kl_per_token for cost in costs)
    while kept.kl_per_token.upper > budget_kl and len(keep) < len(every):
        allowed *= min(SHRINK, budget_kl / kept.kl_per_token.upper)
        keep = cheapest(costs, allowed).keep
        progress(f"all but {len(keep)}")
        kept = distance(measured.texts(every.difference(keep)))
    return Report(
        folder.resolve().name,
        scheme,
        dtype,
        tuple(found),
        whole,
        total,
        budget_kl,
        keep,
        kept,
        sum(cost.rounded_bytes for cost in costs),
        sum(cost.kept_bytes for cost in costs),
        sum(cost.kept_bytes - cost.rounded_bytes for cost in costs if cost.name in keep),
    )
