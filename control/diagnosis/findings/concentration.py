"""Decides whether an effect belongs to one organization: its part of the affected requests, compared with its part of
the traffic.

An organization that sends most of the requests has most of the refusals, which means nothing. One is named if nearly
all affected requests are its own, several times as often as with the others, and not by chance: evenly loaded
organizations share effects.
"""

from __future__ import annotations

import msgspec

from control.diagnosis.findings.comparison import FEWEST, surely_more
from control.diagnosis.findings.evidence import Window

NEARLY_ALL = 0.8
TIMES = 3.0
"""Factor compared with the others."""


class Concentration(msgspec.Struct, frozen=True):
    """An effect on one organization. count: of its requests; total: of all requests."""

    organization: str
    count: int
    total: int
    requests: int
    all_requests: int

    @property
    def alone(self) -> bool:
        """There are no others: the request was for one organization, or only one exists."""
        return self.requests >= self.all_requests

    @property
    def is_concentrated(self) -> bool:
        """The effect belongs to this organization alone."""
        if self.alone or self.count < FEWEST or self.count < NEARLY_ALL * self.total:
            return False
        share = self.requests / self.all_requests
        others = (self.total - self.count) / (self.all_requests - self.requests)
        return self.count / self.requests >= TIMES * others and surely_more(self.count, self.total, share)

    def told(self, what: str) -> str:
        """The sentence of evidence. what: befell them, e.g. `waited`."""
        of = f"{self.count:,} of the {self.total:,} requests that {what} are those of {self.organization}"
        return f"{of}, which sent {self.requests / self.all_requests:.0%} of all."


def refused_beyond_shares(window: Window) -> Concentration | None:
    """The organization with most of these requests; None: none."""
    top = max(window.over_shares, key=lambda each: each.refused, default=None)
    if top is None:
        return None
    return Concentration(top.organization, top.refused, window.over_share, top.requests, window.requests)


def waiting(window: Window) -> Concentration | None:
    """The organization with most requests that waited and succeeded; None: none."""
    top = max(window.tenants, key=lambda each: each.waited, default=None)
    if top is None or top.organization is None or not top.waited:
        return None
    total, requests = (sum(getattr(each, name) for each in window.tenants) for name in ("waited", "requests"))
    return Concentration(top.organization, top.waited, total, top.requests, requests)
