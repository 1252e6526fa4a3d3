"""Decides which LoRA adapter gives up its slot on a replica for another one: a pure rule.

A replica's slots are divided evenly among the organizations that use them: organizations with an adapter there that a
request uses, or used at most `recent_s` ago, and the organization that asks. The rule is max-min fairness of a cache,
as in Pu et al., FairRide, NSDI 2016, without its blocking: an adapter belongs to one organization only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class PlacedAdapter(NamedTuple):
    """An adapter that has a slot. used_at: monotonic seconds at which a request last used it."""

    name: str
    organization_id: str
    in_use: bool
    used_at: float


class Eviction(NamedTuple):
    """name: the adapter to unload. why: the reason in words, for the record of the decision."""

    name: str
    why: str


def evicted_for(
    organization_id: str, held: Sequence[PlacedAdapter], places: int, now: float, recent_s: float
) -> Eviction | None:
    """The adapter that gives its slot to one of this organization where all `places` are taken; None: the new adapter
    has to wait.

    An adapter in use is never evicted. First goes the least recently used adapter of an organization that has used none
    of its own lately; then, with the newcomer counted, one of the organization that holds the most slots above an even
    share. So an organization that requests many adapters evicts its own, and adapters within another organization's
    share stay.
    """
    idle = [one for one in held if not one.in_use]
    using = {one.organization_id for one in held if one.in_use or now - one.used_at <= recent_s} | {organization_id}
    left = [one for one in idle if one.organization_id not in using]
    if left:
        return Eviction(min(left, key=_age).name, f"its organization has used no adapter there for {recent_s:g} s")
    counts = Counter([organization_id, *(one.organization_id for one in held)])
    share = places / len(using)
    over = [one for one in idle if counts[one.organization_id] > share]
    if not over:
        return None
    gone = min(over, key=lambda one: (-counts[one.organization_id], one.used_at))
    owner = gone.organization_id
    whose = "the same organization" if owner == organization_id else "an organization"
    of_places = f"{counts[owner]} of {places} slots" + (" with this one" if owner == organization_id else "")
    return Eviction(gone.name, f"of {whose}, which would hold {of_places}; an even share is {share:.3g}")


def _age(one: PlacedAdapter) -> float:
    return one.used_at
