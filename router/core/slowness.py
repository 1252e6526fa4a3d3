"""Compares one replica's first tokens with its pool's, by several organizations' reports: no single one decides.

    value = lower median, over the voices heard lately, of each one's own moving ratio

One organization's prompts can take long on the fastest engine. An organization is one voice, however many requests it
has: with one other voice it cannot make a replica slower than the other finds it, with two it is outvoted. Voices are
a fixed number of hash cells: two organizations in one cell are one voice, which only makes verdicts rarer.
"""

from __future__ import annotations

import xxhash

from router.core.latency_model import RATIO_STEP, Ratio

CELLS = 8
"""Voices kept for each replica."""
FRESH_S = 60.0
"""A voice not heard for this long does not count while others are heard."""
LARGEST_STEP = 0.3


class Slowness:
    """The slowness of one replica. Only `learn` changes it."""

    __slots__ = ("_heard_at", "_prior", "_voices", "count", "value")

    def __init__(self, speed: float = 1.0) -> None:
        self._prior = speed
        self._voices: dict[int, Ratio] = {}
        self._heard_at: dict[int, float] = {}
        self.value = 1.0 / speed
        """Above 1: slower."""
        self.count = 0
        """Reports since the last verdict."""

    def learn(self, organization_id: str, observed_s: float, expected_s: float, now: float) -> None:
        """A first token came. expected_s: by the pool's formula, without any ratio."""
        self.count += 1
        cell = cell_of(organization_id)
        self._heard_at[cell] = now
        heard = self.voices(now)
        # each of several voices has only a part of the reports: it must follow them correspondingly faster
        step = min(RATIO_STEP * len(heard), LARGEST_STEP)
        self._voices.setdefault(cell, Ratio(self._prior)).learn(observed_s, expected_s, step)
        ratios = sorted(self._voices[one].value for one in heard)
        self.value = ratios[(len(ratios) - 1) // 2]

    def voices(self, now: float) -> set[int]:
        """Cells of the organizations heard lately."""
        return {cell for cell, heard_at in self._heard_at.items() if now - heard_at <= FRESH_S}


def cell_of(organization_id: str) -> int:
    """The voice of an organization, which others may share."""
    return xxhash.xxh3_64_intdigest(organization_id.encode()) % CELLS
