"""Measures how many tokens a check of drafts yields on held-out text, by source of drafts and temperature.

A check always yields one token, the target's own, and another one for each draft before the first wrong one. Greedy
text of a small model runs into loops, which every source drafts well, so temperature 1 is measured as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from speculative.config import SpeculationConfig
from tools.training.greedy import generate

DRAFTS = 3


class Acceptance(msgspec.Struct, frozen=True):
    """The figures of one source at one temperature."""

    source: str
    temperature: float
    tokens_per_check: float
    tokens_per_step: float
    """Tokens of one sequence, including steps without drafts."""
    checks: int
    tokens: int


def measure(folder: Path, prompts: Sequence[Sequence[int]], new_tokens: int, head: Path | None) -> list[Acceptance]:
    """Continue each prompt alone by at most `new_tokens`, greedily and at temperature 1, with `DRAFTS` drafts."""
    sources = {"n-gram": SpeculationConfig(method="ngram", governed=False, max_drafts=DRAFTS)}
    if head is not None:
        sources["EAGLE"] = SpeculationConfig(method="eagle", head=str(head), governed=False, max_drafts=DRAFTS)
    rows = []
    for temperature in (0.0, 1.0):
        for name, speculation in sources.items():
            stats = generate(
                folder, prompts, max_tokens=new_tokens, temperature=temperature, speculation=speculation, together=1
            ).stats
            rows.append(
                Acceptance(
                    source=name,
                    temperature=temperature,
                    tokens_per_check=round(stats.accept_length, 3),
                    tokens_per_step=round(stats.generation_tokens / stats.steps, 3),
                    checks=stats.draft_checks,
                    tokens=stats.generation_tokens,
                )
            )
    return rows
