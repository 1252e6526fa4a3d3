"""Limits one organization's part of a release's evidence. Pure.

With several organizations, none has more than a share of the sessions, nor of the baseline's requests. The number of
others comes from the baseline's requests before the release: those above their share count no more for it, so no
organization changes the number by a flood.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from control.releases.judge import Observation

ALONE = 100
"""Sessions that an organization may have whatever the others have: enough to see that a candidate fails at all."""
_NEARLY = 1e-6
"""Of a quotient that would be a whole number if doubles were exact."""


class Sessions(msgspec.Struct, frozen=True):
    """Those that a release was judged by so far."""

    units: frozenset[int] = frozenset()
    by_organization: Mapping[str, int] = {}

    def joined_by(self, observations: Iterable[Observation], new: Mapping[str, int]) -> Sessions:
        """With those of a step. new: sessions of it that were not there before, by organization."""
        names = self.by_organization.keys() | new.keys()
        return Sessions(
            self.units | {each.unit for each in observations},
            {name: self.by_organization.get(name, 0) + new.get(name, 0) for name in names},
        )


def share_of(counts: Iterable[int], share: float, least: int) -> float:
    """The share that a release holds organizations to: `share`, or as much more as the largest one has when the
    baseline is to have `least` requests; 1, no cap, where there is no other.

    counts: requests of the baseline, by organization. share: 0.5 to 1.
    """
    ordered = sorted(counts)
    return max(share, 1.0 - sum(ordered[:-1]) / least)


def allowed(others: int, share: float) -> int:
    """The most that one may have beside so many of all others to have no more than `share`, below 1, of all."""
    return math.floor(share / (1.0 - share) * others + _NEARLY)


def ceiling(counts: Iterable[int], share: float, most: int) -> int:
    """How many requests of the baseline any one organization may have: no more than `share` of those that are taken,
    and as many for all as fit into `most`, those with fewer keeping theirs."""
    ordered = sorted(counts)
    if not ordered:
        return 0
    if share < 1.0:
        ordered[-1] = min(ordered[-1], allowed(sum(ordered[:-1]), share))
        ordered.sort()
    room = most
    for place, count in enumerate(ordered):
        left = len(ordered) - place
        if count * left > room:
            return room // left
        room -= count
    return ordered[-1]


def parts_of(requests: Mapping[str, int], most: int, share: float) -> dict[str, float]:
    """The part of each organization's sessions that is looked at, where there are more requests than `most`.

    Equal parts, but that the one with more than `share` of the requests leaves the others the rest of the places, as
    far as they need them.
    """
    found = sum(requests.values())
    if found <= most:
        return dict.fromkeys(requests, 1.0)
    largest = max(requests, key=lambda name: (requests[name], name))
    others = found - requests[largest]
    if requests[largest] <= share * found:
        return dict.fromkeys(requests, most / found)
    its = max(share * most, most - others)
    return {
        name: its / count if name == largest else min(1.0, (most - its) / others) for name, count in requests.items()
    }


def places(new: Mapping[str, int], taken: Mapping[str, int], share: float) -> dict[str, int]:
    """How many of its new sessions each organization may bring to those that were taken of it.

    As many as it has, but for the one with more than `share` (0.5 or more: there is one at most) of all that are
    there; it may have `ALONE` in any case. What was taken stays.
    """
    found = dict(new)
    if share >= 1.0 or not new:
        return found
    have = {name: taken.get(name, 0) + new.get(name, 0) for name in sorted(taken.keys() | new.keys())}
    largest = max(have, key=lambda name: have[name])
    most = max(ALONE, allowed(sum(have.values()) - have[largest], share))
    if largest in found:
        found[largest] = min(found[largest], max(0, most - taken.get(largest, 0)))
    return found


def chosen(
    units: Mapping[int, str], sessions: Sessions, share: float, key: bytes
) -> tuple[frozenset[int], dict[str, int]]:
    """Which sessions of a look are taken, and how many of them are new, by organization.

    Those that were taken before, and of new ones as many as there are places, in the order of a hash by a secret key:
    neither their time nor their name brings one in. units: sessions of the look with their organizations.
    """
    new: dict[str, list[int]] = {}
    for unit, name in units.items():
        if unit not in sessions.units:
            new.setdefault(name, []).append(unit)
    may = places({name: len(each) for name, each in new.items()}, sessions.by_organization, share)
    joining = [unit for name, each in new.items() for unit in _drawn(each, may[name], key)]
    known = units.keys() & sessions.units
    return frozenset(known | set(joining)), {name: count for name, count in may.items() if count}


def _drawn(units: Sequence[int], count: int, key: bytes) -> Sequence[int]:
    if count >= len(units):
        return units
    return sorted(units, key=lambda unit: hashlib.blake2b(unit.to_bytes(8, "big"), digest_size=8, key=key).digest())[
        :count
    ]
