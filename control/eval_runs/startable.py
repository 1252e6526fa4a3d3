"""Checks that slices can pass a comparison at all, before any of their items is asked."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from contracts.desired_state import Model
from contracts.errors import ConfigError, InvalidField
from contracts.generation import Tier
from control.eval_runs.config import EvalsConfig
from control.eval_runs.plan import seeds_of
from control.eval_runs.verdicts import rules_of
from control.evals.store import Rule
from control.slices.bounds import MAX_ITEMS
from control.slices.startable import EvalSlice, SliceRule
from evals.slices.catalogue import Catalogue
from evals.slices.item import Source
from evals.statistics.looks import levels, looks
from evals.statistics.sizes import least_budget, least_margin

SAMPLES = (50, 100, 200, 400)
"""Numbers of items whose templates are counted: more as long as it is unclear whether the slice can pass."""
ASKS = {Tier.AUTOCOMPLETE: "conversations", Tier.CHAT: "for the rest of a line in a file"}
"""Question types that models of a tier do not support."""
CLEARLY = 0.5
"""The part of the margin below which no more items are counted."""


class ConfiguredSlices:
    """The slices of this deployment's settings."""

    def __init__(self, config: EvalsConfig) -> None:
        self._config = config

    async def all(self) -> list[EvalSlice]:
        return await asyncio.to_thread(self._all)

    async def require_tier(self, names: Sequence[str], model: Model) -> None:
        """Require that the slices fit the model's tier. Raises InvalidField."""
        await asyncio.to_thread(self._require_tier, names, model)

    async def require(self, names: Sequence[str], rule: SliceRule, alpha: float) -> None:
        """Require that the slices exist and can pass by the rule. Raises InvalidField."""
        if names:
            await asyncio.to_thread(self._require, names, rule, alpha)

    def _all(self) -> list[EvalSlice]:
        catalogue = self._catalogue()
        found = (catalogue.find(name) for name in catalogue.names)
        return [
            EvalSlice(name=one.name, about=one.about, tier=tier_of(one), goal=one.goal, items=one.size) for one in found
        ]

    def _catalogue(self) -> Catalogue:
        try:
            return self._config.catalogue()
        except ConfigError as error:
            raise InvalidField(f"The deployment's slices cannot be read: {error.message}", param="slices") from None

    def _require_tier(self, names: Sequence[str], model: Model) -> None:
        if wrong := unfit(self._catalogue(), names, model.tier):
            fitting = ", ".join(self._catalogue().names_for(model.tier))
            raise InvalidField(
                f"The model {model.name!r} is of the tier {model.tier.value}, and the slice {wrong[0]!r} asks "
                f"{ASKS[model.tier]}; slices for that tier: {fitting}.",
                param="slices",
            )

    def _require(self, names: Sequence[str], rule: SliceRule, alpha: float) -> None:
        catalogue = self._catalogue()
        for name in names:
            if name not in catalogue.names:
                raise InvalidField(f"There is no slice {name!r}; slices: {', '.join(catalogue.names)}.", param="slices")
        for name in names:
            require_passable(catalogue.find(name), rule, alpha)


def tier_of(source: Source) -> Tier:
    """Tier of the models that a slice fits."""
    return Tier.AUTOCOMPLETE if source.fills_gaps else Tier.CHAT


def unfit(catalogue: Catalogue, names: Sequence[str], tier: Tier) -> list[str]:
    """The slices that models of a tier do not support, without unknown slices."""
    fitting = catalogue.names_for(tier)
    return [name for name in names if name in catalogue.names and name not in fitting]


def require_passable(source: Source, asked: SliceRule, alpha: float) -> None:
    """Raise InvalidField, with the arithmetic, for a slice that would not pass even if no answer differs."""
    of_all = Rule(margin=asked.margin, margins=asked.margins, alpha=alpha, correlation=asked.correlation)
    rule = rules_of([source], of_all, asked.budget_items)
    found = rule[source.name]
    counts = looks(found.first_look, found.budget)
    for items in SAMPLES:
        alike, templates = alike_of(source, items)
        least = least_margin(counts, levels(alpha, counts), alike, found.correlation)
        if least < CLEARLY * found.margin:
            return
    if least < found.margin:
        return
    dilution = 1 + (counts[-1] - 1) * alike * found.correlation
    raise InvalidField(
        f"The slice {source.name!r} cannot pass at a margin of {100 * found.margin:g} points: its "
        f"{counts[-1]} items come from {templates} templates, which at a correlation of {found.correlation:g} are as "
        f"much evidence as {counts[-1] / dilution:.0f} independent ones, and equal answers to all of them show no less "
        f"than {100 * least:.2f} points. Set slice_rule.margins.{source.name} to {_rounded_up(least):g} or more "
        f"(--slice-margin {source.name}={_rounded_up(least):g}), or leave the slice out.",
        param="slice_rule.margins",
    )


def too_few(sources: Sequence[Source], rule: Rule, budget_items: int) -> Iterator[str]:
    """A sentence for each group of slices with too few items to pass a comparison, whatever their templates are: even
    equal answers to all of them would not exclude the margin."""
    groups: dict[tuple[int, float], list[str]] = {}
    for name, found in rules_of(sources, rule, budget_items).items():
        groups.setdefault((found.budget, found.margin), []).append(name)
    for (items, margin), names in groups.items():
        counts = looks(rule.first_look, items)
        least = least_margin(counts, levels(rule.alpha, counts), 0.0, rule.correlation)
        if least >= margin:
            wanted = least_budget(rule.first_look, rule.alpha, margin, MAX_ITEMS)
            budget = () if wanted is None else (f"--budget {wanted}, where a slice has so many",)
            yield (
                f"{', '.join(names)} cannot pass: equal answers to {items:,} items show a difference of no less than "
                f"{100 * least:.2f} points, and the margin is {100 * margin:g}; what could: "
                f"{'; '.join((*budget, f'--margin {_rounded_up(least):g}'))}"
            )


def alike_of(source: Source, items: int) -> tuple[float, int]:
    """The probability that two of a slice's first items have the same template, and the number of templates in
    them."""
    seeds = seeds_of(source, 0, items)
    counted = Counter(source.item(seed).cluster for seed in seeds)
    pairs = len(seeds) * (len(seeds) - 1)
    return sum(count * (count - 1) for count in counted.values()) / pairs if pairs else 1.0, len(counted)


def _rounded_up(margin: float) -> float:
    """The margin rounded up to a tenth of a point, and always above the bound."""
    return (math.floor(margin * 1_000) + 1) / 1_000
