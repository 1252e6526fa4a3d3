"""A pure rule that decides which LoRA adapter gives up its slot on a replica for another one.

A replica's slots are divided evenly among the organizations that use them: organizations with an adapter there that a
request uses, or used at most `recent_s` ago, and the organization of the new adapter. The rule is max-min fairness of a
cache, as in Pu et al., FairRide, NSDI 2016, without its blocking, because an adapter belongs to one organization only.
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
    """An eviction. name: the adapter to unload. why: the reason in words, for the record of the decision."""

    name: str
    why: str


def evicted_for(
    organization_id: str, held: Sequence[PlacedAdapter], places: int, now: float, recent_s: float
) -> Eviction | None:
    """The adapter that gives up its slot for an adapter of this organization, if all `places` are taken; None if the
    new adapter has to wait.

    An adapter in use is never evicted. The first choice is the least recently used adapter of organizations that have
    used none of theirs recently. The second is an adapter of the organization that, with the new adapter counted, holds
    the most slots above an even share. So an organization that requests many adapters evicts its own, and adapters
    within another organization's share stay.
    """
    idle = [each for each in held if not each.in_use]
    using = {each.organization_id for each in held if each.in_use or now - each.used_at <= recent_s} | {organization_id}
    abandoned = [each for each in idle if each.organization_id not in using]
    if abandoned:
        return Eviction(min(abandoned, key=_age).name, f"its organization has used no adapter there for {recent_s:g} s")
    counts = Counter([organization_id, *(each.organization_id for each in held)])
    share = places / len(using)
    over = [each for each in idle if counts[each.organization_id] > share]
    if not over:
        return None
    evicted = min(over, key=lambda each: (-counts[each.organization_id], each.used_at))
    owner = evicted.organization_id
    owner_text = "the same organization" if owner == organization_id else "an organization"
    of_places = f"{counts[owner]} of {places} slots" + (" with this one" if owner == organization_id else "")
    return Eviction(evicted.name, f"of {owner_text}, which would hold {of_places}; an even share is {share:.3g}")


def _age(adapter: PlacedAdapter) -> float:
    return adapter.used_at
