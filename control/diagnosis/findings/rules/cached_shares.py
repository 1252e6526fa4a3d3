"""Cached shares of an organization's prompts, now and before, which three rules judge differently.

Shares count tokens. `last` is the last third of the window: by then, a filling cache has improved, and a broken prefix
has not.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec

from control.diagnosis.findings.comparison import Excess, grown
from control.diagnosis.findings.evidence import PARTS, Evidence, Part, Slice, same
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

MIN, MIN_OF_PART = 20, 8
WORTH = 0.3
"""Below this share there was little to lose. The program calls a workload with less than 40 % not cache-friendly."""
FALL = 0.5
"""A fall to half, like the alert of the prefix contract (one dynamic token takes 80 % to 10 %)."""
COLD_FALL, RISE, NEAR = 0.65, 1.3, 0.6
"""A filling cache: its first third to the window before, its last third to the first, and to the window before."""


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of one organization or all, 0 to 1. first, last: thirds of the window; None with too few requests."""

    label: str
    requests: int
    requests_before: int
    before: float
    now: float
    first: float | None
    last: float | None
    cached_tokens: float
    """Mean per request."""
    cached_tokens_before: float
    reusable: float | None = None
    """The share that engines could have cached, by the prompts alone; None if prompts were not compared."""
    reusable_before: float | None = None

    @property
    def fell(self) -> bool:
        """Whether both the share and the cached tokens fell: longer prompts lower only the share."""
        return (
            self.before >= WORTH
            and self.now <= FALL * self.before
            and self.cached_tokens <= FALL * self.cached_tokens_before
        )

    @property
    def prompts_changed(self) -> bool | None:
        """Whether prompts no longer begin like earlier ones; None if they were not compared."""
        if self.reusable is None or self.reusable_before is None:
            return None
        return self.reusable_before >= WORTH and self.reusable <= FALL * self.reusable_before

    @property
    def fills(self) -> bool:
        """Whether the share was low at first and returned near its earlier value in the last third."""
        if self.first is None or self.last is None or self.before < WORTH:
            return False
        low = self.first <= COLD_FALL * self.before
        return low and self.last >= RISE * self.first and self.last >= NEAR * self.before

    @property
    def stays_low(self) -> bool:
        """Whether the share fell and did not recover by the window's end; if the end is unknown, whether it fell
        further than that of a filling cache."""
        if self.last is None:
            return self.fell and self.now <= FALL * FALL * self.before
        return self.fell and self.last <= NEAR * self.before

    @property
    def told(self) -> str:
        """The sentence of evidence."""
        sentence = (
            f"Engines had {self.now:.0%} of the prompt tokens of {self.label} cached ({self.requests:,} "
            f"requests); before, {self.before:.0%} ({self.requests_before:,})."
        )
        if self.first is not None and self.last is not None:
            sentence += f" In the window's first third {self.first:.0%}, in its last {self.last:.0%}."
        if self.reusable is not None and self.reusable_before is not None:
            could_have = f" Judging by the prompts alone, {self.reusable:.0%} could have been reused"
            sentence += f"{could_have}; before, {self.reusable_before:.0%}."
        return sentence


def shares(evidence: Evidence) -> tuple[Shares, ...]:
    """The shares of every organization with enough requests in both windows, the largest first."""
    if evidence.before is None:
        return ()
    pairs = ((now, same(evidence.before.tenants, now)) for now in evidence.now.tenants)
    found = (_shares(now, before, evidence.now.parts) for now, before in pairs if before is not None)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: -each.requests))


def together(evidence: Evidence) -> Shares | None:
    """The shares of all organizations that are in both windows."""
    if evidence.before is None:
        return None
    known = {each.organization for each in evidence.before.tenants} & {
        each.organization for each in evidence.now.tenants
    }
    parts = tuple(each for each in evidence.now.parts if each.organization in known)
    return _shares(_sum(evidence.now.tenants, known), _sum(evidence.before.tenants, known), parts)


def harm(evidence: Evidence, objectives: Objectives) -> Excess | None:
    """The cost before the first token: growth of prefill, without other phases."""
    found = (grown(evidence, measure, objectives, Number.TTFT) for measure in (Measure.PREFILL, Measure.ENGINE_UNSPLIT))
    return max((each for each in found if each is not None), key=lambda each: each.score, default=None)


def _shares(now: Slice, before: Slice, parts: tuple[Part, ...]) -> Shares | None:
    if min(now.requests, before.requests) < MIN or before.cached_share is None or now.cached_share is None:
        return None
    return Shares(
        label=now.label,
        requests=now.requests,
        requests_before=before.requests,
        before=before.cached_share,
        now=now.cached_share,
        first=_part(parts, now.organization, 0),
        last=_part(parts, now.organization, PARTS - 1),
        cached_tokens=now.cached_tokens / now.requests,
        cached_tokens_before=before.cached_tokens / before.requests,
        reusable=now.reusable_share,
        reusable_before=before.reusable_share,
    )


def _sum(tenants: tuple[Slice, ...], known: Set[str | None]) -> Slice:
    chosen = [each for each in tenants if each.organization in known]
    return Slice(
        requests=sum(each.requests for each in chosen),
        prompt_tokens=sum(each.prompt_tokens for each in chosen),
        cached_tokens=sum(each.cached_tokens for each in chosen),
        sampled_tokens=sum(each.sampled_tokens for each in chosen),
        reusable_tokens=sum(each.reusable_tokens for each in chosen),
    )


def _part(parts: tuple[Part, ...], organization: str | None, number: int) -> float | None:
    """The cached share in one part of the window. organization: None for all."""
    chosen = [each for each in parts if each.number == number and organization in (None, each.organization)]
    prompt_tokens = sum(each.prompt_tokens for each in chosen)
    if sum(each.requests for each in chosen) < MIN_OF_PART or not prompt_tokens:
        return None
    return sum(each.cached_tokens for each in chosen) / prompt_tokens
