"""The deployment's slices, and those that a release may request: the ones that can pass by its rule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from contracts.desired_state import Model
from contracts.errors import InvalidField
from contracts.generation import Tier
from control.slices.bounds import Items, Margin

BUDGET_ITEMS = 1_600


class SliceRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """margin: how much lower the candidate's share of right answers may be, from 0 to 1. margins: margins of single
    slices, in place of `margin`. budget_items: the maximum number of items of each slice, for either pool. correlation:
    the assumed correlation of rare losses within a template."""

    margin: Margin = 0.02
    margins: dict[str, Margin] = {}
    budget_items: Items = BUDGET_ITEMS
    correlation: Annotated[float, Meta(ge=0, le=1)] = 0.05


def require_asked(param: str, margins: Collection[str], slices: Collection[str]) -> None:
    """Raise InvalidField for a margin of a slice that is not asked."""
    for name in margins:
        if name not in slices:
            listed = ", ".join(slices) or "none"
            raise InvalidField(f"{param} names the slice {name!r}, which is not asked; slices: {listed}.", param=param)


class EvalSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice. about: its subject. tier: the tier of the models that it fits. goal: the required share of right
    answers; 0 without a requirement. items: the number of items; null if each seed makes one."""

    name: str
    about: str
    tier: Tier
    goal: float
    items: int | None


class SliceCheck(Protocol):
    """The deployment's slices and their checks."""

    async def all(self) -> list[EvalSlice]:
        """All slices: generators first, then those of files. Raises InvalidField if the files cannot be read."""
        ...

    async def require_tier(self, names: Sequence[str], model: Model) -> None:
        """Raise InvalidField for a slice that does not fit the model's tier."""
        ...

    async def require(self, names: Sequence[str], rule: SliceRule, alpha: float) -> None:
        """Raise InvalidField for an unknown slice, or one that cannot pass by the rule at this `alpha` even if both
        pools give the same answers."""
        ...


class NoSlices:
    """The slices of a deployment that has none."""

    async def all(self) -> list[EvalSlice]:
        return []

    async def require_tier(self, names: Sequence[str], model: Model) -> None:
        return None

    async def require(self, names: Sequence[str], rule: SliceRule, alpha: float) -> None:
        if names:
            raise InvalidField("This deployment has no slices.", param="slices")
