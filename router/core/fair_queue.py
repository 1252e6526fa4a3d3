"""Who waits for a pool, and in which order: class, then promises that can still be kept, fair shares, deadlines.

    higher priority
      └─ those who can still be in time, before those who cannot
           └─ the tenant that has been given the fewest tokens for its share (virtual token counter)
                └─ the ask that must start first

The counter is that of Sheng et al. 2024 (VTC, arXiv 2401.00588): charged with what a grant is expected to use,
corrected when it ends, lifted to the least of the waiting when a tenant comes back. Between two tenants that both wait,
tokens given differ by at most twice the largest grant.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.core.waiting import Waiting

OUTPUT_WEIGHT = 2.0
"""A generated token costs about as much as two of a prompt (weights of the VTC paper)."""
LOWEST = -(2**31)
ACTIVE_S = 10.0
"""A tenant that has asked within this time counts when the pool is divided."""
OVER_SHARE = 1.5
"""Holding this many times its fair part, a tenant leaves the rest of the pool to the others."""
IDLE_LIMIT = 4_096
"""Tenants remembered that neither wait nor hold anything."""


class Tenant:
    """One tenant in one pool."""

    __slots__ = ("counter", "held_tokens", "last_asked", "name", "share", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counter = 0.0
        """Tokens given, divided by its share; output tokens count double."""
        self.share = 1.0
        self.waiting = 0
        self.held_tokens = 0
        """Of its live leases."""
        self.last_asked = 0.0


class _Line:
    """One tenant's asks of one class, those that must start first in front."""

    __slots__ = ("asks", "tenant")

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.asks: list[tuple[float, int, Waiting]] = []


class FairQueue:
    """One pool's. Bounded by whoever adds."""

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}
        """Those that wait, hold leases, or were here lately."""
        self._lines: dict[int, dict[str, _Line]] = {}
        """By class, by tenant."""
        self._members: dict[tuple[str, str], Waiting] = {}
        # by gateway too: lease ids are unique within one, the router need not trust them to be beyond
        self._recent: OrderedDict[str, Tenant] = OrderedDict()
        """Those that asked lately, the longest ago first."""
        self._recent_shares = 0.0
        self.held_tokens = 0
        """Of all tenants' live leases."""
        self._level = 0.0
        """Counter of the tenant served last: where a new one begins."""
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def highest(self) -> int:
        """Class of the highest that wait."""
        return max(self._lines, default=LOWEST)

    def __iter__(self) -> Iterator[Waiting]:
        """Everyone, in no particular order; safe against removals."""
        return iter(list(self._members.values()))

    def tenant(self, name: str) -> Tenant:
        """Its account, opened when there is none."""
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = Tenant(name)
            tenant.counter = self._level
            if len(self.tenants) > IDLE_LIMIT:
                self._forget_idle()
        return tenant

    def asked(self, name: str, share: float, now: float) -> Tenant:
        """A tenant asks, whether it will have to wait or not."""
        tenant = self.tenant(name)
        recent = self._recent
        if recent.pop(name, None) is not None:
            self._recent_shares -= tenant.share
        tenant.last_asked = now
        tenant.share = share if share > 0 else 1.0
        recent[name] = tenant
        self._recent_shares += tenant.share
        while (oldest := next(iter(recent.values()))).last_asked < now - ACTIVE_S:
            del recent[oldest.name]
            self._recent_shares -= oldest.share
        return tenant

    def over_share(self, tenant: Tenant) -> bool:
        """Others are active, and it holds far more than its part of what the pool has given out."""
        fair = tenant.share * self.held_tokens * OVER_SHARE
        return len(self._recent) > 1 and tenant.held_tokens * self._recent_shares > fair

    def holds(self, name: str, tokens: int) -> None:
        """A tenant's live leases grew by this many tokens, or shrank when negative."""
        self.tenant(name).held_tokens += tokens
        self.held_tokens += tokens

    def add(self, waiting: Waiting) -> None:
        """Stand in line."""
        ask = waiting.ask
        tenant = self.tenant(ask.organization_id)
        if not tenant.waiting:
            backlogged = [other.counter for other in self.tenants.values() if other.waiting]
            tenant.counter = max(tenant.counter, min(backlogged, default=tenant.counter))
        tenant.waiting += 1
        lines = self._lines.setdefault(ask.priority, {})
        line = lines.get(tenant.name)
        if line is None:
            line = lines[tenant.name] = _Line(tenant)
        self._arrivals += 1
        waiting.number = self._arrivals
        bisect.insort(line.asks, (waiting.start_by, waiting.number, waiting))
        self._members[waiting.session.gateway_id, ask.lease_id] = waiting

    def remove(self, waiting: Waiting) -> None:
        """Leave the line, wherever it stands."""
        ask = waiting.ask
        del self._members[waiting.session.gateway_id, ask.lease_id]
        lines = self._lines[ask.priority]
        line = lines[ask.organization_id]
        del line.asks[bisect.bisect_left(line.asks, (waiting.start_by, waiting.number))]
        line.tenant.waiting -= 1
        if not line.asks:
            del lines[ask.organization_id]
            if not lines:
                del self._lines[ask.priority]

    def in_order(self, now: float) -> Iterator[Waiting]:
        """Everyone, whose turn it is first. Valid until the queue or a counter changes."""
        for priority in sorted(self._lines, reverse=True):
            lines = sorted(self._lines[priority].values(), key=lambda line: (line.tenant.counter, line.tenant.name))
            cuts = [bisect.bisect_left(line.asks, (now,)) for line in lines]
            for line, cut in zip(lines, cuts, strict=True):
                for _, _, waiting in line.asks[cut:]:
                    yield waiting
            for line, cut in zip(lines, cuts, strict=True):
                for _, _, waiting in line.asks[:cut]:
                    yield waiting

    def in_order_list(self) -> list[Waiting]:
        """The same at once, as if no promise could be broken."""
        return list(self.in_order(float("-inf")))

    def last(self) -> Waiting | None:
        """Who is shed first: of the lowest class, of the tenant that was given most, the one that can start latest."""
        if not self._lines:
            return None
        lines = self._lines[min(self._lines)]
        line = max(lines.values(), key=lambda line: (line.tenant.counter, line.tenant.name))
        return line.asks[-1][2]

    def ahead_of(self, priority: int, tenant: Tenant) -> int:
        """How many turns pass before one more ask of this tenant gets its own, when shares are fair."""
        ahead = 0
        for other_priority, lines in self._lines.items():
            if other_priority < priority:
                continue
            for line in lines.values():
                if other_priority > priority or line.tenant is tenant:
                    ahead += len(line.asks)
                else:
                    own = lines[tenant.name].asks if tenant.name in lines else ()
                    ahead += min(len(line.asks), len(own) + 1)
        return ahead

    def charge(self, tenant: Tenant, prompt_tokens: float, output_tokens: float) -> None:
        """Tokens given, or taken back when negative."""
        tenant.counter += (prompt_tokens + OUTPUT_WEIGHT * output_tokens) / tenant.share

    def served(self, tenant: Tenant) -> None:
        """It was this tenant's turn."""
        self._level = tenant.counter

    def _forget_idle(self) -> None:
        idle = [tenant for tenant in self.tenants.values() if not tenant.waiting and not tenant.held_tokens]
        for tenant in sorted(idle, key=lambda one: one.last_asked)[: len(idle) // 2 + 1]:
            del self.tenants[tenant.name]
            if self._recent.pop(tenant.name, None) is not None:
                self._recent_shares -= tenant.share
