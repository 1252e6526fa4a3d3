"""Which LoRA adapter gives up its place on a replica for another one: a pure rule.

A replica's places are divided evenly among the organizations that use them: those with an adapter there that a request
has, or had `recent_s` ago at most, and the one that asks. Max-min fairness of a cache, as in Pu et al., FairRide, NSDI
2016, without its blocking: an adapter is nobody else's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class PlacedAdapter(NamedTuple):
    """One that has a place. used_at: monotonic seconds of when a request last had it."""

    name: str
    organization_id: str
    in_use: bool
    used_at: float


class Eviction(NamedTuple):
    """name: of the adapter that is to go. why: in words, for the record of the decision."""

    name: str
    why: str


def evicted_for(
    organization_id: str, held: Sequence[PlacedAdapter], places: int, now: float, recent_s: float
) -> Eviction | None:
    """Whose place an adapter of this organization gets where all `places` are taken; None: nobody's, it has to wait.

    Never that of one in use. First the one used longest ago of an organization that used none of its own of late; then,
    with the newcomer counted, of the organization that holds the most of those that hold more than an even share. So
    whoever asks for many adapters loses their own, and what others use within their share stays.
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
    of_places = f"{counts[owner]} of {places} places" + (" with this one" if owner == organization_id else "")
    return Eviction(gone.name, f"of {whose}, which would hold {of_places}; an even share is {share:.3g}")


def _age(one: PlacedAdapter) -> float:
    return one.used_at
