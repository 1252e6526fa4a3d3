"""Limits one organization's part of a release's evidence. Pure.

With several organizations, none has more than a share of the sessions or of the baseline's requests. The share depends
on the others' baseline requests before the release, not on those of the largest organization, so no organization
changes it by a flood.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from control.releases.judge import Observation

ALONE = 100
"""Sessions that an organization may have in any case: enough to show that a candidate fails at all."""
_NEARLY = 1e-6
"""Rounding error of a quotient that would be a whole number if doubles were exact."""


class Sessions(msgspec.Struct, frozen=True):
    """The sessions by which a release was judged so far."""

    units: frozenset[int] = frozenset()
    by_organization: Mapping[str, int] = {}

    def joined_by(self, observations: Iterable[Observation], new: Mapping[str, int]) -> Sessions:
        """These sessions and those of a step. new: the step's new sessions, by organization."""
        names = self.by_organization.keys() | new.keys()
        return Sessions(
            self.units | {each.unit for each in observations},
            {name: self.by_organization.get(name, 0) + new.get(name, 0) for name in names},
        )


def share_of(counts: Iterable[int], share: float, least: int) -> float:
    """The largest share that a release allows an organization: `share`, or as much more as the largest one needs for
    `least` baseline requests; 1, no limit, if there is no other organization.

    counts: requests of the baseline, by organization. share: 0.5 to 1.
    """
    ordered = sorted(counts)
    return max(share, 1.0 - sum(ordered[:-1]) / least)


def allowed(others: int, share: float) -> int:
    """The most that one organization may have, next to this many of all others, within `share`, below 1, of all."""
    return math.floor(share / (1.0 - share) * others + _NEARLY)


def ceiling(counts: Iterable[int], share: float, most: int) -> int:
    """The most baseline requests that one organization may have: at most `share` of all that are taken, and an equal
    number for each within `most`, while organizations with fewer keep theirs."""
    ordered = sorted(counts)
    if not ordered:
        return 0
    if share < 1.0:
        ordered[-1] = min(ordered[-1], allowed(sum(ordered[:-1]), share))
        ordered.sort()
    room = most
    for at, count in enumerate(ordered):
        remaining = len(ordered) - at
        if count * remaining > room:
            return room // remaining
        room -= count
    return ordered[-1]


def parts_of(requests: Mapping[str, int], most: int, share: float) -> dict[str, float]:
    """The part of each organization's sessions that is drawn if there are more than `most` requests.

    The parts are equal, except that an organization with more than `share` of the requests leaves the rest of `most` to
    the others, as far as they need it.
    """
    found = sum(requests.values())
    if found <= most:
        return dict.fromkeys(requests, 1.0)
    largest = max(requests, key=lambda name: (requests[name], name))
    others = found - requests[largest]
    if requests[largest] <= share * found:
        return dict.fromkeys(requests, most / found)
    drawn = max(share * most, most - others)
    return {
        name: drawn / count if name == largest else min(1.0, (most - drawn) / others)
        for name, count in requests.items()
    }


def places(new: Mapping[str, int], taken: Mapping[str, int], share: float) -> dict[str, int]:
    """How many of its new sessions each organization may add to those that were taken before.

    An organization may add all, unless it has more than `share` of all sessions (0.5 or more, so at most one has). It
    may have `ALONE` in any case. Sessions that were taken stay.
    """
    found = dict(new)
    if share >= 1.0 or not new:
        return found
    totals = {name: taken.get(name, 0) + new.get(name, 0) for name in sorted(taken.keys() | new.keys())}
    largest = max(totals, key=lambda name: totals[name])
    most = max(ALONE, allowed(sum(totals.values()) - totals[largest], share))
    if largest in found:
        found[largest] = min(found[largest], max(0, most - taken.get(largest, 0)))
    return found


def chosen(
    units: Mapping[int, str], sessions: Sessions, share: float, key: bytes
) -> tuple[frozenset[int], dict[str, int]]:
    """The sessions of a look that are taken, and the number of new ones among them, by organization.

    Sessions that were taken before stay. New ones fill the places in the order of a hash with a secret key, so neither
    their time nor their name matters. units: sessions of the look with their organizations.
    """
    new: dict[str, list[int]] = {}
    for unit, name in units.items():
        if unit not in sessions.units:
            new.setdefault(name, []).append(unit)
    added = places({name: len(each) for name, each in new.items()}, sessions.by_organization, share)
    joining = [unit for name, each in new.items() for unit in _drawn(each, added[name], key)]
    known = units.keys() & sessions.units
    return frozenset(known | set(joining)), {name: count for name, count in added.items() if count}


def _drawn(units: Sequence[int], count: int, key: bytes) -> Sequence[int]:
    if count >= len(units):
        return units
    return sorted(units, key=lambda unit: hashlib.blake2b(unit.to_bytes(8, "big"), digest_size=8, key=key).digest())[
        :count
    ]
