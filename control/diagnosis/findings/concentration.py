"""Decides whether an effect belongs to one organization by comparing its part of the affected requests with its part of
the traffic.

An organization that sends most requests also has most refusals, which proves nothing. An organization is named if
nearly all affected requests are its own, if its requests are affected several times as often as those of the others,
and if chance does not explain that. Evenly loaded organizations share effects.
"""

from __future__ import annotations

import msgspec

from control.diagnosis.findings.comparison import FEWEST, surely_more
from control.diagnosis.findings.evidence import Window

NEARLY_ALL = 0.8
TIMES = 3.0
"""How many times as often as the others' requests its own are affected."""


class Concentration(msgspec.Struct, frozen=True):
    """An effect on one organization. count: its affected requests; total: all affected requests."""

    organization: str
    count: int
    total: int
    requests: int
    all_requests: int

    @property
    def alone(self) -> bool:
        """Whether there are no others: the diagnosis covers one organization, or only one exists."""
        return self.requests >= self.all_requests

    @property
    def is_concentrated(self) -> bool:
        """Whether the effect belongs to this organization alone."""
        if self.alone or self.count < FEWEST or self.count < NEARLY_ALL * self.total:
            return False
        share = self.requests / self.all_requests
        others = (self.total - self.count) / (self.all_requests - self.requests)
        return self.count / self.requests >= TIMES * others and surely_more(self.count, self.total, share)

    def told(self, what: str) -> str:
        """The sentence of evidence. what: the effect, such as `waited`."""
        affected = f"{self.count:,} of the {self.total:,} requests that {what} are those of {self.organization}"
        return f"{affected}, which sent {self.requests / self.all_requests:.0%} of all."


def refused_beyond_shares(window: Window) -> Concentration | None:
    """The organization with the most refusals beyond its share; None without any."""
    top = max(window.over_shares, key=lambda each: each.refused, default=None)
    if top is None:
        return None
    return Concentration(top.organization, top.refused, window.over_share, top.requests, window.requests)


def waiting(window: Window) -> Concentration | None:
    """The organization with the most answered requests that waited; None without any."""
    top = max(window.tenants, key=lambda each: each.waited, default=None)
    if top is None or top.organization is None or not top.waited:
        return None
    total, requests = (sum(getattr(each, name) for each in window.tenants) for name in ("waited", "requests"))
    return Concentration(top.organization, top.waited, total, top.requests, requests)
