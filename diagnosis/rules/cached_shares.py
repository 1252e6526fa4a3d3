"""What engines had cached of an organization's prompts, now and before: what three rules judge differently.

Shares are of tokens. `last` is the last third of the window: a cache that fills is better at its end, a prefix that
broke is not.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from diagnosis.comparison import Excess, Number, grown
from diagnosis.evidence import PARTS, Evidence, Part, Slice, same
from diagnosis.measure import Measure
from diagnosis.objectives import Objectives

LEAST, LEAST_OF_PART = 20, 8
WORTH = 0.3
"""Below this share there was little to lose. The program calls a workload with less than 40 % not cache-friendly."""
FALL = 0.5
"""To half: the alert of the prefix contract (one dynamic token takes 80 % to 10 %)."""

RISE, NEAR = 1.5, 0.6
"""Of the first third, and of what it was before: a cache that fills."""


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Of one organization, 0 to 1. first, last: thirds of the window; None: too few requests in it."""

    organization: str
    requests: int
    requests_before: int
    before: float
    now: float
    first: float | None
    last: float | None
    cached_tokens: float
    """Of a request, on average."""
    cached_tokens_before: float

    @property
    def fell(self) -> bool:
        """The share and the tokens: longer prompts lower a share while as much is cached as ever."""
        return (
            self.before >= WORTH
            and self.now <= FALL * self.before
            and self.cached_tokens <= FALL * self.cached_tokens_before
        )

    @property
    def fell_at_first(self) -> bool:
        """In the first third, at least."""
        return self.before >= WORTH and self.first is not None and self.first <= FALL * self.before

    @property
    def recovers(self) -> bool:
        """The last third is back near where it was, and clearly above the first."""
        if self.first is None or self.last is None:
            return False
        return self.last >= RISE * max(self.first, 0.05) and self.last > NEAR * self.before

    @property
    def told(self) -> str:
        """The sentence of evidence."""
        sentence = (
            f"Engines had {self.now:.0%} of the prompt tokens of {self.organization} cached ({self.requests:,} "
            f"requests); before, {self.before:.0%} ({self.requests_before:,})."
        )
        if self.first is not None and self.last is not None:
            sentence += f" In the window's first third {self.first:.0%}, in its last {self.last:.0%}."
        return sentence


def shares(evidence: Evidence) -> tuple[Shares, ...]:
    """Of every organization with enough requests in both windows, the largest first."""
    return tuple(sorted(_shares(evidence), key=lambda each: -each.requests))


def harm(evidence: Evidence, objectives: Objectives) -> Excess | None:
    """What it costs in the time to first token."""
    found = (
        grown(evidence, measure, objectives, Number.TTFT)
        for measure in (Measure.TTFT, Measure.PREFILL, Measure.ENGINE_UNSPLIT)
    )
    return max((each for each in found if each is not None), key=lambda each: each.score, default=None)


def _shares(evidence: Evidence) -> Iterator[Shares]:
    if evidence.before is None:
        return
    for now in evidence.now.tenants:
        before = same(evidence.before.tenants, now)
        if before is None or min(now.requests, before.requests) < LEAST or now.organization is None:
            continue
        if before.cached_share is None or now.cached_share is None:
            continue
        yield Shares(
            organization=now.organization,
            requests=now.requests,
            requests_before=before.requests,
            before=before.cached_share,
            now=now.cached_share,
            first=_part(evidence.now.parts, now.organization, 0),
            last=_part(evidence.now.parts, now.organization, PARTS - 1),
            cached_tokens=_each(now),
            cached_tokens_before=_each(before),
        )


def _each(one: Slice) -> float:
    return one.cached_tokens / one.requests


def _part(parts: tuple[Part, ...], organization: str, number: int) -> float | None:
    found = next((each for each in parts if (each.organization, each.number) == (organization, number)), None)
    if found is None or found.requests < LEAST_OF_PART or not found.prompt_tokens:
        return None
    return found.cached_tokens / found.prompt_tokens
