"""Compares a replica's first tokens with its pool's, from several organizations' reports, so that no single one
decides.

    value = lower median, over the recently heard voices, of each voice's own moving ratio

One organization's prompts can take long on the fastest engine. An organization is one voice, however many requests it
has: with one other voice, it cannot make a replica seem slower than the other's ratio; with two, it is outvoted. Voices
are a fixed number of hash cells: two organizations in one cell are one voice, which only makes verdicts rarer.
"""

from __future__ import annotations

import xxhash

from router.core.latency_model import RATIO_STEP, Ratio

CELLS = 8
"""Number of voices for each replica."""
FRESH_S = 60.0
"""Time after its last report for which a voice counts."""
LARGEST_STEP = 0.3


class Slowness:
    """The slowness of one replica. Only `learn` changes it."""

    __slots__ = ("_heard_at", "_prior", "_voices", "count", "value")

    def __init__(self, speed: float = 1.0) -> None:
        self._prior = speed
        self._voices: dict[int, Ratio] = {}
        self._heard_at: dict[int, float] = {}
        self.value = 1.0 / speed
        """The ratio; above 1 means slower."""
        self.count = 0
        """Reports since the last verdict."""

    def learn(self, organization_id: str, observed_s: float, expected_s: float, now: float) -> None:
        """Learn from a first token. expected_s: its time by the pool's formula, without any ratio."""
        self.count += 1
        cell = cell_of(organization_id)
        self._heard_at[cell] = now
        heard = self.voices(now)
        # each of several voices has only a part of the reports, so it must follow them correspondingly faster
        step = min(RATIO_STEP * len(heard), LARGEST_STEP)
        self._voices.setdefault(cell, Ratio(self._prior)).learn(observed_s, expected_s, step)
        ratios = sorted(self._voices[each].value for each in heard)
        self.value = ratios[(len(ratios) - 1) // 2]

    def voices(self, now: float) -> set[int]:
        """Cells of the organizations with recent reports."""
        return {cell for cell, heard_at in self._heard_at.items() if now - heard_at <= FRESH_S}


def cell_of(organization_id: str) -> int:
    """The voice of an organization, which other organizations may share."""
    return xxhash.xxh3_64_intdigest(organization_id.encode()) % CELLS
